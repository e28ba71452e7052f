"""Arguments and options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from federation.mesh import Mesh
from federation.mesh_file import read_mesh

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
RabbitMQFolder = Annotated[
    Path | None,
    typer.Option(
        "--rabbitmq",
        metavar="DIR",
        help="Another installation of RabbitMQ for private brokers: its folder, or a chroot.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

DEFAULT_STATE = Path(".isthmus")


def mesh_or_exit(file: Path) -> Mesh:
    """The mesh in the file; its problems go to standard error, and a bad file ends the command."""
    reading = read_mesh(file)
    for problem in reading.problems:
        typer.echo(str(problem), err=True)
    if reading.mesh is None:
        raise typer.Exit(EXIT_USAGE)
    return reading.mesh


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
