"""`isthmus simulate FILE --fail LINK --for 2h --rate 500`: what an outage of a mesh costs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from federation.counted import counted
from federation.mesh import Mesh
from federation.mesh_file.quantities import BadDuration, BadSize, parse_duration, parse_size
from isthmus.options import EXIT_FAULT, EXIT_USAGE, mesh_or_exit
from isthmus.outage.asked import BadQuestion, Question, parse_failure, parse_lines, parse_load
from isthmus.outage.figures import Answer, answer, flows_of, kept_of
from isthmus.outage.tables import tables
from isthmus.outage.told import told_of
from isthmus.page import page
from isthmus.progress import saying
from simulation.outage import observe_outage
from simulation.world import NotInTime, silence

MANY_SITES = 40
"""From so many on it is said that it takes minutes."""
MOST_SITES = 200
"""All nodes are in one process: these take 600 MB."""


@dataclass(frozen=True, slots=True)
class Said:
    """The options, as they were given."""

    fail: Sequence[str]
    seconds: str | None
    rate: Sequence[str]
    size: str
    line_rate: Sequence[str]
    compression: float


def simulate_outage(file: Path, said: Said, *, as_json: bool) -> None:
    """Print what it would cost; ends the command, with 1 if the file's outage window or a log is
    not enough.
    """
    mesh = mesh_or_exit(file)
    if len(mesh.sites) > MOST_SITES:
        _refuse(
            f"{file}: {counted(len(mesh.sites), 'site')} are too many to run in one process: give "
            f"a file of the part that matters, of {MOST_SITES} or fewer; `isthmus plan` tells the "
            "disk of all"
        )
    try:
        question = _question(mesh, said)
    except (BadQuestion, BadDuration, BadSize) as error:
        _refuse(str(error))
    if len(mesh.sites) > MANY_SITES:
        typer.echo(f"{counted(len(mesh.sites), 'site')} may take minutes", err=True)
    told = told_of(_answer(mesh, question))
    if as_json:
        typer.echo(json.dumps(told, indent=1))
    else:
        page().print(tables(told))
    if not told["enough"]:
        raise typer.Exit(EXIT_FAULT)


def _question(mesh: Mesh, said: Said) -> Question:
    if not said.fail:
        raise BadQuestion("say what fails: --fail LINK or --fail SITE")
    if said.seconds is None:
        raise BadQuestion("say for how long it is away, such as --for 2h")
    if not said.rate:
        raise BadQuestion("say what is published, in messages a second, such as --rate 500")
    failure = parse_failure(said.fail, mesh)
    seconds = parse_duration(said.seconds)
    if not seconds:
        raise BadQuestion("--for 0s is no outage: say such as --for 2h")
    rates, size = parse_load(said.rate, mesh), parse_size(said.size)
    lines = parse_lines(said.line_rate, mesh)
    names = tuple(dict.fromkeys(said.fail))
    question = Question(names, failure, seconds, rates, size, lines, said.compression)
    if not mesh.exchanges:
        raise BadQuestion("the mesh has no exchanges: nothing is published, and nothing can lag")
    if not flows_of(mesh, question):
        raise BadQuestion("nothing is published at that rate: no exchange leaves any site with it")
    return question


def _answer(mesh: Mesh, question: Question) -> Answer:
    try:
        with silence(), saying("the mesh starts") as tell:
            watched = observe_outage(
                mesh, flows_of(mesh, question), question.failure, kept_of(mesh, question), tell
            )
    except NotInTime as error:
        _refuse(f"the simulated mesh did not come to rest: {error}")
    return answer(mesh, question, watched)


def _refuse(why: str) -> NoReturn:
    typer.echo(why, err=True)
    raise typer.Exit(EXIT_USAGE)
