"""`isthmus bench FILE`: rates and latencies of the mesh, and whether everything arrives once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer
import uvloop
from rich.console import Console

from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh_file import PasswordMissing
from isthmus.bench.options import BenchOptions
from isthmus.display import page
from isthmus.known.address_book import address_book_or_exit
from isthmus.load.messages import RUN_BYTES
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    AsJson,
    MeshFile,
    StateFolder,
    exit_with,
    grouped,
    mesh_or_exit,
)

if TYPE_CHECKING:
    from isthmus.bench.figures import BenchResult
    from isthmus.bench.request import BenchRequest

EXIT_NOT_MEASURED = 3
"""A broker could not be reached, or was lost during the measurement."""
DISTURB = "--disturb-others"


@grouped
def bench(
    file: MeshFile,
    options: BenchOptions,
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
    """Publish test messages at the sites, and measure how fast they arrive at the others.

    Each site that, by the mesh file, takes the messages gets a queue of its own, where arrivals,
    missing messages, duplicates and disorder are counted. Ctrl-C ends the measurement early, with a
    report. Latency is from when a message was due to be published to its delivery, by this
    machine's clock.

    Refuses an exchange with other bindings at any site that the messages reach. They take the way
    of all messages: the sites' logs keep them for the outage window.

    Exit status 0 if all arrived once, 1 if something is missing or came twice without the
    redelivery flag, 2 if the file or the call is wrong or others listen, 3 if a broker could not be
    reached or was lost meanwhile.

    Examples:

    isthmus bench mesh.yaml --exchange orders --rate 500 --duration 1m

    isthmus bench mesh.yaml --from paris --to tokyo,sydney --size 10KiB
    """
    # Imported late: parsing rates loads the graph library, which takes a quarter of a second.
    from isthmus.bench.figures import report_of
    from isthmus.bench.request import BadBench, request_of
    from isthmus.bench.tables import tables

    mesh = mesh_or_exit(file)
    try:
        request = request_of(mesh, options)
    except BadBench as error:
        exit_with(str(error), EXIT_USAGE)
    book = address_book_or_exit(mesh, state)
    result = _result(request, book, disturb=disturb_others)
    if as_json:
        report = {"mesh": mesh.name, "revision": mesh.revision, **report_of(result)}
        typer.echo(json.dumps(report, indent=1))
    else:
        page().print(tables(result))
    if result.problems:
        raise typer.Exit(EXIT_NOT_MEASURED)
    if not result.all_arrived_once:
        raise typer.Exit(EXIT_FAULT)


def _result(request: BenchRequest, book: AddressBook, *, disturb: bool) -> BenchResult:
    from isthmus.bench.ends import BrokerAway, Ends
    from isthmus.bench.measurement import Measurement
    from isthmus.bench.other_listeners import OthersListen, refuse_if_others_listen
    from isthmus.bench.tables import live_view

    async def allowed() -> None:
        if not disturb:
            await refuse_if_others_listen(book, request)

    async def measured() -> BenchResult:
        ends = Ends(request, book, os.urandom(RUN_BYTES))
        with live_view(ends, Console(stderr=True)) as show:
            measurement = Measurement(ends, allowed, show)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, measurement.end)
            return await measurement.run()

    try:
        return uvloop.run(measured())
    except (AddressError, PasswordMissing) as error:
        exit_with(str(error), EXIT_NOT_MEASURED)
    except BrokerAway as error:
        exit_with(f"{error}; `isthmus doctor` says more", EXIT_NOT_MEASURED)
    except OthersListen as error:
        exit_with(
            f"{error}\nThey would get the messages of a measurement, or wait behind them: take an "
            f"exchange of its own for it, or say {DISTURB}",
            EXIT_USAGE,
        )
