"""Completion in a shell: names of sites and links from the mesh file on the same command line.

Shells get the rest from `isthmus --install-completion`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from federation.mesh import Mesh
from federation.mesh_file import read_mesh


def site_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sites whose names begin so."""
    mesh = _mesh(ctx)
    return [] if mesh is None else _beginning(mesh.sites, incomplete)


def link_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the links, as FROM-TO, whose names begin so."""
    mesh = _mesh(ctx)
    return [] if mesh is None else _beginning((link.name for link in mesh.links), incomplete)


def _mesh(ctx: typer.Context) -> Mesh | None:
    """Return the mesh of FILE; None where none is named yet, or the file has a mistake: a shell
    must not show errors amid a line.
    """
    # Behind an option that has no value yet, click leaves the arguments where they are.
    file = ctx.params.get("file") or next(iter(ctx.args), None)
    return None if file is None else read_mesh(Path(file).expanduser()).mesh


def _beginning(names: Iterable[str], begin: str) -> list[str]:
    return sorted(name for name in names if name.startswith(begin))
