"""`isthmus down FILE`: end what `up` has started."""

from __future__ import annotations

import asyncio

import typer

from isthmus.options import DEFAULT_STATE, MeshFile, StateFolder
from isthmus.up.supervisor import end_supervisor


def down(file: MeshFile, state: StateFolder = DEFAULT_STATE) -> None:
    """End the mesh's nodes and private brokers on this machine, in order. Nothing is deleted.

    What runs is known from --state: the file may be wrong, or gone.
    """
    if asyncio.run(end_supervisor(state)):
        typer.echo(f"the mesh of {file} has ended; its messages are kept in {state}")
    else:
        typer.echo(f"nothing was running in {state}")
