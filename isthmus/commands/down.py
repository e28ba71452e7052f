"""`isthmus down FILE`: end what `up` has started."""

from __future__ import annotations

import asyncio

import typer

from isthmus.options import DEFAULT_STATE, MeshFile, StateFolder, mesh_or_exit
from isthmus.supervisor import end_supervisor


def down(file: MeshFile, state: StateFolder = DEFAULT_STATE) -> None:
    """End the mesh's nodes and private brokers on this machine, in order. Nothing is deleted."""
    mesh = mesh_or_exit(file)
    if asyncio.run(end_supervisor(state)):
        typer.echo(f"mesh {mesh.name} has ended; its messages are kept in {state}")
    else:
        typer.echo(f"nothing of mesh {mesh.name} was running in {state}")
