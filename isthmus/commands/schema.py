"""`isthmus schema`: what a mesh file may say, for editors and for people."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from federation.mesh_file.reference import mesh_reference, mesh_schema, site_list_schema


def schema(
    included: Annotated[
        bool, typer.Option("--included", help="Of files that a mesh file includes.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="As a page to read, docs/mesh-file.md, in Markdown.")
    ] = False,
) -> None:
    """Print the JSON Schema of mesh files.

    An editor with it completes and checks keys while you write. It knows single keys and values;
    `isthmus validate` knows what they come to together.

    Example: isthmus schema > mesh.schema.json
    """
    if page:
        typer.echo(mesh_reference(), nl=False)
    else:
        typer.echo(json.dumps(site_list_schema() if included else mesh_schema(), indent=2))
