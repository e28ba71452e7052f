"""`isthmus bench FILE`: what the mesh carries, how fast, and whether all of it arrives once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
import uvloop
from rich.console import Console

from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh_file import PasswordMissing
from isthmus.bench.queues import QueueType
from isthmus.known.address_book import address_book_or_exit
from isthmus.load import RUN_BYTES
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    StateFolder,
    mesh_or_exit,
)
from isthmus.page import page

if TYPE_CHECKING:
    from isthmus.bench.asked import Asked
    from isthmus.bench.figures import Outcome

EXIT_NOT_MEASURED = 3
"""A broker could not be reached, or was lost meanwhile."""
DISTURB = "--disturb-others"


def bench(
    file: MeshFile,
    exchange: Annotated[
        str | None,
        typer.Option("--exchange", metavar="NAME", help="Default: the mesh's only one."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            help="Routing key of all messages. Default: one that takes them to the most sites.",
        ),
    ] = None,
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="SITES", help="Publish there only: names with commas between."
        ),
    ] = None,
    destinations: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="SITES", help="Listen there only: names with commas between."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            help="Messages a second at each site that publishes. Default: as fast as it goes.",
        ),
    ] = None,
    size: Annotated[str, typer.Option("--size", help="Of a message's body.")] = "1KiB",
    duration: Annotated[str, typer.Option("--duration", help="Publish for so long.")] = "30s",
    wait: Annotated[
        str,
        typer.Option("--wait", help="Then give up when nothing has arrived for so long."),
    ] = "60s",
    ahead: Annotated[
        int | None,
        typer.Option(
            "--ahead",
            metavar="N",
            min=1,
            help="Without --rate: most messages under way from one site to another. Default: "
            "10,000, or 64 MiB of them.",
        ),
    ] = None,
    queue_type: Annotated[
        QueueType, typer.Option("--queue-type", help="Of the queues that it listens at.")
    ] = QueueType.QUORUM,
    disturb_others: Annotated[
        bool,
        typer.Option(
            DISTURB,
            help="Go on though others are bound to the exchange, or may be: their queues get the "
            "messages too.",
        ),
    ] = False,
    state: StateFolder = DEFAULT_STATE,
    as_json: AsJson = False,
) -> None:
    """Publish test messages at the sites, and tell how fast they arrive at the others.

    It has a queue of its own at each site that, by the mesh file, takes what is published, and
    counts there what arrives, what is missing, what comes twice and what comes out of order.
    Ctrl-C ends it early, with a report. Latency is from when a message was due to be published to
    its delivery, by this machine's clock.

    Refuses an exchange to which anything else is bound at any site that the messages get to. They
    go the way of all messages: what is published stays in the sites' logs for the outage window.

    Exit status 0 if all arrived once, 1 if something is missing or came twice without the flag for
    it, 2 if the file or the call is wrong or others listen, 3 if a broker could not be reached or
    was lost meanwhile.

    Examples:

    isthmus bench mesh.yaml --exchange orders --rate 500 --duration 1m

    isthmus bench mesh.yaml --from paris --to tokyo,sydney --size 10KiB
    """
    # Here and not above: what reads rates brings the graph library, a quarter of a second.
    from isthmus.bench.asked import Said, asked_of
    from isthmus.bench.figures import told_of
    from isthmus.bench.pairs import BadBench
    from isthmus.bench.tables import tables

    mesh = mesh_or_exit(file)
    try:
        asked = asked_of(
            mesh,
            Said(
                exchange=exchange,
                key=key,
                origins=_names(origins),
                destinations=_names(destinations),
                rate=rate,
                size=size,
                duration=duration,
                wait=wait,
                ahead=ahead,
                queue_type=queue_type,
            ),
        )
    except BadBench as error:
        _end(str(error), EXIT_USAGE)
    book = address_book_or_exit(mesh, state)
    outcome = _outcome(asked, book, disturb=disturb_others)
    if as_json:
        told = {"mesh": mesh.name, "revision": mesh.revision, **told_of(outcome)}
        typer.echo(json.dumps(told, indent=1))
    else:
        page().print(tables(outcome))
    if outcome.problems:
        raise typer.Exit(EXIT_NOT_MEASURED)
    if not outcome.all_arrived_once:
        raise typer.Exit(EXIT_FAULT)


def _names(texts: list[str] | None) -> list[str]:
    names = [name.strip() for text in texts or () for name in text.split(",")]
    return list(dict.fromkeys(filter(None, names)))


def _outcome(asked: Asked, book: AddressBook, *, disturb: bool) -> Outcome:
    from isthmus.bench.ends import BrokerAway, Ends
    from isthmus.bench.live import shown
    from isthmus.bench.measurement import Measurement
    from isthmus.bench.others import OthersListen, refuse_if_others_listen

    async def allowed() -> None:
        if not disturb:
            await refuse_if_others_listen(book, asked)

    async def measured() -> Outcome:
        ends = Ends(asked, book, os.urandom(RUN_BYTES))
        with shown(ends, Console(stderr=True)) as show:
            measurement = Measurement(ends, allowed, show)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, measurement.end)
            return await measurement.run()

    try:
        return uvloop.run(measured())
    except (AddressError, PasswordMissing) as error:
        _end(str(error), EXIT_NOT_MEASURED)
    except BrokerAway as error:
        _end(f"{error}; `isthmus doctor` says more", EXIT_NOT_MEASURED)
    except OthersListen as error:
        _end(
            f"{error}\nThey would get the messages of a measurement, or wait behind them: take an "
            f"exchange of its own for it, or say {DISTURB}",
            EXIT_USAGE,
        )


def _end(why: str, status: int) -> NoReturn:
    typer.echo(why, err=True)
    raise typer.Exit(status)
