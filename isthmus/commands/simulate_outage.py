"""`isthmus simulate FILE --fail LINK --for 2h --rate 500`: cost of an outage of a mesh."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from federation.mesh import Mesh
from federation.mesh_file.quantities import BadDuration, BadSize, parse_duration, parse_size
from federation.wording import counted
from isthmus.display import page, status_line
from isthmus.options import EXIT_FAULT, EXIT_USAGE, OutageOptions, exit_with, mesh_or_exit
from isthmus.outage.figures import OutageCost, flows_of, kept_of, outage_cost, report_of
from isthmus.outage.question import BadQuestion, Question, parse_failure, parse_lines, parse_load
from isthmus.outage.tables import tables
from simulation.outage import observe_outage
from simulation.world import NotInTime, silence

MANY_SITES = 40
"""Number of sites from which a hint announces minutes of work."""
MOST_SITES = 200
"""Limit of sites: all nodes share one process, which takes 600 MB then."""


def simulate_outage(file: Path, options: OutageOptions, *, as_json: bool) -> None:
    """Print the cost of an outage; exit with 1 if the file's outage window or a log is not
    enough.
    """
    mesh = mesh_or_exit(file)
    if len(mesh.sites) > MOST_SITES:
        exit_with(
            f"{file}: {counted(len(mesh.sites), 'site')} are too many to run in one process: give "
            f"a file of the part that matters, of {MOST_SITES} or fewer; `isthmus plan` tells the "
            "disk of all",
            EXIT_USAGE,
        )
    try:
        question = _question(mesh, options)
    except (BadQuestion, BadDuration, BadSize) as error:
        exit_with(str(error), EXIT_USAGE)
    if len(mesh.sites) > MANY_SITES:
        typer.echo(f"{counted(len(mesh.sites), 'site')} may take minutes", err=True)
    report = report_of(_cost(mesh, question))
    if as_json:
        typer.echo(json.dumps(report, indent=1))
    else:
        page().print(tables(report))
    if not report["enough"]:
        raise typer.Exit(EXIT_FAULT)


def _question(mesh: Mesh, options: OutageOptions) -> Question:
    if not options.fail:
        raise BadQuestion("say what fails: --fail LINK or --fail SITE")
    if options.outage is None:
        raise BadQuestion("say for how long it is away, such as --for 2h")
    if not options.rate:
        raise BadQuestion("say what is published, in messages a second, such as --rate 500")
    failure = parse_failure(options.fail, mesh)
    seconds = parse_duration(options.outage)
    if not seconds:
        raise BadQuestion("--for 0s is no outage: say such as --for 2h")
    rates, size = parse_load(options.rate, mesh), parse_size(options.size)
    lines = parse_lines(options.line_rate or (), mesh)
    names = tuple(dict.fromkeys(options.fail))
    question = Question(names, failure, seconds, rates, size, lines, options.compression)
    if not mesh.exchanges:
        raise BadQuestion("the mesh has no exchanges: nothing is published, and nothing can lag")
    if not flows_of(mesh, question):
        raise BadQuestion("nothing is published at that rate: no exchange leaves any site with it")
    return question


def _cost(mesh: Mesh, question: Question) -> OutageCost:
    try:
        with silence(), status_line("the mesh starts") as tell:
            watched = observe_outage(
                mesh, flows_of(mesh, question), question.failure, kept_of(mesh, question), tell
            )
    except NotInTime as error:
        exit_with(f"the simulated mesh did not come to rest: {error}", EXIT_USAGE)
    return outage_cost(mesh, question, watched)
