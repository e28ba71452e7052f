"""`isthmus plan FILE`: consequences of a mesh file, before the mesh runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from federation.brokers.addresses import AddressError
from federation.brokers.credentials import CredentialsError
from federation.mesh import Mesh
from federation.mesh_file.quantities import BadSize, parse_size
from isthmus.completion import site_names
from isthmus.display import page
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    Compression,
    MeshFile,
    MessageSize,
    StateFolder,
    exit_with,
    grouped,
    reading_or_exit,
    site_or_exit,
)

if TYPE_CHECKING:
    from isthmus.plan.expected_load import ExpectedLoad


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Content of a plan."""

    site: Annotated[
        list[str] | None,
        typer.Option(
            "--site",
            metavar="SITE",
            help="Only what concerns this site; two: the pair, in full.",
            autocompletion=site_names,
        ),
    ] = None
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Expected messages, for the disk: 200/s to each exchange at each site that "
            "publishes to it; orders=50/s; orders@paris=1k/s. May be repeated.",
        ),
    ] = None
    size: MessageSize = "1KiB"
    compression: Compression = 1.0
    everything: Annotated[
        bool, typer.Option("--all", help="Each site by itself, however many there are.")
    ] = False
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the brokers' management APIs what apply would do.")
    ] = False


@grouped
def plan(
    file: MeshFile,
    options: PlanOptions,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
    dot: Annotated[bool, typer.Option("--dot", help="Print a graph for Graphviz.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Print a drawing.")] = False,
) -> None:
    """Show what a mesh file comes to, before it runs.

    Who dials whom and who gets what, how many ways there are between sites, what may not fail, how
    much of the time sites are joined, what disk the outage window needs, what `apply` would change.
    Touches no broker unless `--ask` has the command look, and never changes one.

    Sites that look alike share a line. Availability is computed from `availability:` of links
    (default 0.99) and sites; exactly up to 20 links that may fail, above that by sampling.

    Exit status 0; 1 if the state folder is damaged; 2 if the file or the call is wrong.

    Examples:

    isthmus plan mesh.yaml --rate 200/s --size 2KiB

    isthmus plan mesh.yaml --site paris --site tokyo

    isthmus plan mesh.yaml --svg > mesh.svg
    """
    if as_json + dot + svg > 1:
        exit_with("--json, --dot and --svg are three kinds of output: choose one", EXIT_USAGE)
    reading, mesh = reading_or_exit(file)
    chosen = list(dict.fromkeys(options.site or ()))
    site_or_exit(file, mesh, *chosen)
    if dot or svg:
        if options.rate or chosen:
            exit_with("a drawing shows the whole mesh: leave --site and --rate out", EXIT_USAGE)
        typer.echo(_drawing(mesh, each=options.everything, svg=svg))
        return
    # Imported late: the graph library takes a quarter of a second, which others need not wait.
    from isthmus.plan.changes import changes_of
    from isthmus.plan.report import plan_of
    from isthmus.plan.tables import tables

    load = _load(mesh, options.rate, options.size, options.compression) if options.rate else None
    report = plan_of(mesh, sites=chosen, each=options.everything, load=load)
    report["apply"] = changes_of(reading, mesh, state)
    report["brokers"] = (
        _broker_changes(mesh, chosen or list(mesh.sites), state) if options.ask else None
    )
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    page().print(tables(report, everything=options.everything))


def _drawing(mesh: Mesh, *, each: bool, svg: bool) -> str:
    from isthmus.plan.drawing import as_dot, as_svg
    from isthmus.plan.picture import picture_of

    picture = picture_of(mesh, each=each)
    return as_svg(picture) if svg else as_dot(picture)


def _broker_changes(mesh: Mesh, sites: list[str], state: Path) -> dict[str, Any]:
    from isthmus.plan.changes import ask_brokers

    try:
        return asyncio.run(ask_brokers(mesh, sites, state))
    except (AddressError, CredentialsError) as error:
        exit_with(str(error), EXIT_FAULT)


def _load(mesh: Mesh, rates: list[str], size: str, compression: float) -> ExpectedLoad:
    from isthmus.plan.expected_load import BadLoad, ExpectedLoad, parse_rates

    try:
        return ExpectedLoad(parse_rates(rates, mesh), parse_size(size), compression)
    except (BadLoad, BadSize) as error:
        exit_with(str(error), EXIT_USAGE)
