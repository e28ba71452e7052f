"""Arguments and options that mean the same in every command."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from federation.mesh import Mesh
from federation.mesh_file import Reading, Severity, read_mesh

EXIT_FAULT = 1
"""Something did not work; what, stands on standard error."""
EXIT_USAGE = 2
"""The mesh file or the call is wrong; nothing was done."""
EXIT_STOPPED = 3
"""A node stopped with a reason that no restart mends: the supervisor leaves it alone."""

OnlySites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="SITE", help="Only this site; may be repeated."),
]
MeshFile = Annotated[Path, typer.Argument(metavar="FILE", help="The mesh file.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="A site of the mesh.")]
StateFolder = Annotated[
    Path, typer.Option("--state", metavar="DIR", help="Folder of the mesh's state.")
]
LedgerFolder = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="URI",
        help="Where the sites' ledgers lie, as Spark reads it: a folder for each site. "
        "Default: `sites` in the state folder.",
    ),
]
RabbitMQFolder = Annotated[
    Path | None,
    typer.Option(
        "--rabbitmq",
        metavar="DIR",
        help="Another installation of RabbitMQ for private brokers: its folder, or a chroot.",
    ),
]
PreviousFormats = Annotated[
    bool,
    typer.Option(
        "--previous-formats",
        help="Know no formats but those of the version before: to rehearse an upgrade.",
    ),
]
MessageSize = Annotated[str, typer.Option("--size", help="Of a message's body, on average.")]
Compression = Annotated[
    float, typer.Option(help="How many times smaller batches get.", min=1.0, max=1000.0)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

DEFAULT_STATE = Path(".isthmus")


def ledger_or_own(ledger: str | None, state: Path) -> str:
    """Where the ledgers lie: as told, or else in this state folder."""
    return ledger or str((state / "sites").absolute())


def reading_or_exit(file: Path, sites: Collection[str] | None = None) -> tuple[Reading, Mesh]:
    """What the file says, and the mesh that it comes to; its problems go to standard error, and a
    bad file ends the command. `sites` are those that the command is about: warnings that are
    about others only are left out. None: all of them.
    """
    reading = read_mesh(file)
    say_problems(reading, sites)
    if reading.mesh is None:
        raise typer.Exit(EXIT_USAGE)
    return reading, reading.mesh


def mesh_or_exit(file: Path, sites: Collection[str] | None = None) -> Mesh:
    """The same, of which only the mesh is wanted."""
    return reading_or_exit(file, sites)[1]


def say_problems(reading: Reading, sites: Collection[str] | None = None) -> None:
    """All errors, and the warnings that are about these sites, or about no site by itself."""
    for problem in reading.problems:
        is_error = problem.severity is Severity.ERROR
        if is_error or sites is None or not problem.site or problem.site in sites:
            typer.echo(str(problem), err=True)


def reached_from(mesh: Mesh | None, sites: Collection[str]) -> set[str]:
    """These sites, and those whose brokers their nodes connect to because links meet there."""
    links = mesh.links if mesh is not None else ()
    meetings = {link.meeting for link in links if {link.sender, link.receiver} & set(sites)}
    return {*sites, *meetings}


def site_or_exit(file: Path, mesh: Mesh, *sites: str) -> None:
    """End the command unless the mesh has all these sites."""
    for site in sites:
        if site not in mesh.sites:
            known = ", ".join(mesh.sites)
            typer.echo(f"{file}: there is no site {site!r}; the mesh has {known}", err=True)
            raise typer.Exit(EXIT_USAGE)


def chosen_or_exit(file: Path, mesh: Mesh, only: list[str] | None) -> list[str]:
    """The sites that were named, each once; all of the mesh if none was."""
    chosen = list(dict.fromkeys(only)) if only else list(mesh.sites)
    site_or_exit(file, mesh, *chosen)
    return chosen
