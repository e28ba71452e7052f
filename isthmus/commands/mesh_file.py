"""`isthmus validate FILE` and `isthmus schema`: check a mesh file, and print its schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from federation.mesh import Mesh
from federation.mesh_file.quantities import show_duration
from federation.mesh_file.reference import mesh_reference, mesh_schema, site_list_schema
from federation.wording import counted
from isthmus.options import MeshFile, mesh_or_exit


def validate(file: MeshFile) -> None:
    """Check a mesh file without touching any broker.

    Each problem is printed as FILE:LINE:COLUMN, problem, remedy. Exit status 0 if the file can be
    used (there may be warnings), 2 if not.

    Example: isthmus validate mesh.yaml
    """
    typer.echo(summary(file, mesh_or_exit(file)))


def summary(file: Path, mesh: Mesh) -> str:
    """Summarise a mesh file in one line."""
    return (
        f"{file}: ok: mesh {mesh.name}, {counted(len(mesh.sites), 'site')}, "
        f"{counted(len(mesh.links), 'link')} ({mesh.rule.value} rule), "
        f"{counted(len(mesh.exchanges), 'exchange')}, outage window "
        f"{show_duration(mesh.outage_window_s)}, revision {mesh.revision}"
    )


def schema(
    included: Annotated[
        bool, typer.Option("--included", help="Of files that a mesh file includes.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="As a page to read, docs/mesh-file.md, in Markdown.")
    ] = False,
) -> None:
    """Print the JSON Schema of mesh files.

    An editor with the schema completes and checks keys while you write. The schema covers single
    keys and values; `isthmus validate` checks how they go together.

    Example: isthmus schema > mesh.schema.json
    """
    if page:
        typer.echo(mesh_reference(), nl=False)
    else:
        typer.echo(json.dumps(site_list_schema() if included else mesh_schema(), indent=2))
