"""Options of `isthmus simulate FILE`, which define an outage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from isthmus.options import Compression, MessageSize


@dataclass(frozen=True, slots=True)
class OutageOptions:
    """Question about an outage, as typed on the command line."""

    fail: Annotated[
        list[str] | None,
        typer.Option(
            "--fail",
            metavar="LINK|SITE",
            help="What is away: paris-tokyo (both ways), 'paris->tokyo', paris. May be repeated.",
        ),
    ] = None
    outage: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long it is away: 2h.")
    ] = None
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages a second to each exchange at each site that publishes to it: 500; "
            "paris=500; orders=30/m; orders@paris=1k/s. May be repeated.",
        ),
    ] = None
    size: MessageSize = "1KiB"
    compression: Compression = 1.0
    line_rate: Annotated[
        list[str] | None,
        typer.Option(
            "--line-rate",
            metavar="RATE",
            help="What lines carry each way: 12.5MB/s (unless told); paris-tokyo=1MB/s. May be "
            "repeated.",
        ),
    ] = None
