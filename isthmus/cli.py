"""Command line `isthmus`: each command is a function in `isthmus.commands`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import metadata
from typing import Annotated

import typer

from isthmus.commands.accept_gap import accept_gap
from isthmus.commands.application import consume, publish, uri
from isthmus.commands.apply import apply
from isthmus.commands.audit import audit
from isthmus.commands.bench import bench
from isthmus.commands.cluster import cluster
from isthmus.commands.content import content
from isthmus.commands.demo import demo
from isthmus.commands.doctor import doctor
from isthmus.commands.health import health
from isthmus.commands.holds import drain, pause, resume
from isthmus.commands.keygen import keygen
from isthmus.commands.mesh_file import schema, validate
from isthmus.commands.page import page
from isthmus.commands.plan import plan
from isthmus.commands.put_aside import dead_letters, quarantine
from isthmus.commands.recover import recover
from isthmus.commands.relay import relay
from isthmus.commands.repair import repair
from isthmus.commands.reslot import reslot
from isthmus.commands.simulate import simulate
from isthmus.commands.slots import nodes, slots
from isthmus.commands.status import status
from isthmus.commands.trace import trace
from isthmus.commands.up import down, up

app = typer.Typer(
    no_args_is_help=True,
    # Markdown joins the lines of a docstring; otherwise each would break twice.
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(validate, schema, plan, keygen, apply, up, down, status, page, nodes, slots),
    *(uri, publish, consume),
    *(
        pause,
        resume,
        drain,
        relay,
        health,
        recover,
        reslot,
        accept_gap,
        doctor,
        trace,
        repair,
        simulate,
        bench,
        demo,
    ),
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(audit, name="audit")
app.add_typer(cluster, name="cluster")
app.add_typer(content, name="content")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(quarantine, name="quarantine")


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"isthmus {metadata.version('isthmus')}")
        raise typer.Exit


@app.callback()
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
    for library in ("aio_pika", "aiormq"):
        # Commands print these libraries' failures themselves.
        logging.getLogger(library).addHandler(logging.NullHandler())
    app()
