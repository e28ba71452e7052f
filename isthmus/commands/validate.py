"""`isthmus validate FILE`: what is wrong with a mesh file, all of it."""

from __future__ import annotations

from pathlib import Path

import typer

from federation.counted import counted
from federation.mesh import Mesh
from federation.mesh_file.quantities import show_duration
from isthmus.options import MeshFile, mesh_or_exit


def validate(file: MeshFile) -> None:
    """Check a mesh file without touching any broker.

    Each problem is told as FILE:LINE:COLUMN: what is wrong; how to mend it. Exit status 0 if the
    file can be used (there may be warnings), 2 if not.

    Example: isthmus validate mesh.yaml
    """
    typer.echo(summary(file, mesh_or_exit(file)))


def summary(file: Path, mesh: Mesh) -> str:
    """One line that tells what the file comes to."""
    return (
        f"{file}: ok: mesh {mesh.name}, {counted(len(mesh.sites), 'site')}, "
        f"{counted(len(mesh.links), 'link')} ({mesh.rule.value} rule), "
        f"{counted(len(mesh.exchanges), 'exchange')}, outage window "
        f"{show_duration(mesh.outage_window_s)}, revision {mesh.revision}"
    )
