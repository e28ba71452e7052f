"""Command line of so many commands as are asked for: each comes with the modules that it needs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from importlib import import_module, metadata
from typing import Annotated

import typer

COMMANDS = {
    "validate": "mesh_file",
    "schema": "mesh_file",
    "plan": "plan",
    "keygen": "keygen",
    "apply": "apply",
    "up": "up",
    "down": "up",
    "status": "status",
    "page": "page",
    "nodes": "slots",
    "slots": "slots",
    "uri": "application",
    "publish": "application",
    "consume": "application",
    "pause": "holds",
    "resume": "holds",
    "drain": "holds",
    "relay": "relay",
    "health": "health",
    "recover": "recover",
    "reslot": "reslot",
    "accept-gap": "accept_gap",
    "doctor": "doctor",
    "trace": "trace",
    "repair": "repair",
    "simulate": "simulate",
    "bench": "bench",
    "demo": "demo",
    "audit": "audit",
    "cluster": "cluster",
    "content": "content",
    "dead-letters": "put_aside",
    "quarantine": "put_aside",
}
"""Module of each command in `isthmus.commands`, where the command is a function, or a Typer of
commands; in the order of `isthmus --help`."""


def command_line(names: Collection[str]) -> typer.Typer:
    """Return `isthmus` with these commands. Raises KeyError."""
    made = typer.Typer(
        no_args_is_help=True,
        # Markdown joins the lines of a docstring; otherwise each would break twice.
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    for name in names:
        module = import_module(f"isthmus.commands.{COMMANDS[name]}")
        command = getattr(module, name.replace("-", "_"))
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name)(command)
    made.callback()(isthmus)
    return made


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"isthmus {metadata.version('isthmus')}")
        raise typer.Exit


def isthmus(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", is_eager=True, callback=_version
        ),
    ] = False,
) -> None:
    """Links the RabbitMQ clusters of many sites: every message once, in order, at every site."""


def main() -> None:
    """Run the command that the process was started for."""
    for library in ("aio_pika", "aiormq"):
        # Commands print these libraries' failures themselves.
        logging.getLogger(library).addHandler(logging.NullHandler())
    words = sys.argv[1:]
    if words == ["--version"]:
        needed: Collection[str] = ()
    elif words and words[0] in COMMANDS:
        needed = (words[0],)
    else:
        needed = COMMANDS
    command_line(needed)()
