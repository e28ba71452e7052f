"""Options of `isthmus bench` that define a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from isthmus.bench.queues import QueueType


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options of a measurement, as typed on the command line."""

    exchange: Annotated[
        str | None,
        typer.Option("--exchange", metavar="NAME", help="Default: the mesh's only one."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            help="Routing key of all messages. Default: one that takes them to the most sites.",
        ),
    ] = None
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="SITES", help="Publish there only: names with commas between."
        ),
    ] = None
    destinations: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="SITES", help="Listen there only: names with commas between."),
    ] = None
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages a second at each site that publishes. Default: as fast as it goes.",
        ),
    ] = None
    size: Annotated[str, typer.Option("--size", help="Of a message's body.")] = "1KiB"
    duration: Annotated[str, typer.Option("--duration", help="Publish for so long.")] = "30s"
    wait: Annotated[
        str,
        typer.Option("--wait", help="Then give up when nothing has arrived for so long."),
    ] = "60s"
    ahead: Annotated[
        int | None,
        typer.Option(
            "--ahead",
            metavar="N",
            min=1,
            help="Without --rate: most messages under way from one site to another. Default: "
            "10,000, or 64 MiB of them.",
        ),
    ] = None
    queue_type: Annotated[
        QueueType, typer.Option("--queue-type", help="Of the queues that it listens at.")
    ] = QueueType.QUORUM
