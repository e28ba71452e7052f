"""`isthmus reslot`: cut a site's work into other slots."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
import yaml
from aio_pika.exceptions import AMQPException

from dedup.store import StoreError, StoreLocked
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.amqp_declare import declaring
from federation.brokers.users import put_aside_queues
from federation.mesh import Mesh
from federation.mesh_file import PasswordMissing
from federation.mesh_file.quantities import BadDuration, parse_duration, show_duration
from federation.names import Names
from federation.slots import MOST_SLOTS, SlotMap
from federation.wording import counted
from isthmus.hold_orders import hold
from isthmus.known.address_book import address_book_or_exit
from isthmus.options import (
    DEFAULT_STATE,
    EXIT_FAULT,
    EXIT_USAGE,
    MeshFile,
    SiteName,
    StateFolder,
    exit_with,
    mesh_or_exit,
    site_or_exit,
)
from isthmus.status import status_of
from relay.ledger.file_writer import ExportFailed, FileWriters
from relay.node.process import only_process
from relay.node.site_folder import QUIESCED, STANDBY, site_folder
from relay.node.site_slots import worst_of
from relay.node.start import NodeStopped
from relay.reslot.reslotting import ReslotRefused, Reslotting, change_under_way
from relay.reslot.slot_change import SlotChange
from relay.state.node_state import StateError

POLL_S = 0.5
_EVERY_KEYS = 1_000_000


def reslot(
    file: MeshFile,
    site: SiteName,
    slots: Annotated[
        int, typer.Option("--slots", help="Number of slots to have.", min=1, max=MOST_SLOTS)
    ],
    place: Annotated[
        list[str] | None,
        typer.Option(
            "--place",
            metavar="EXCHANGE=SLOT",
            help="Slot of an exchange; may be repeated. Default: as FILE says, if it fits.",
        ),
    ] = None,
    within: Annotated[
        str, typer.Option("--within", help="How long the site may take to become quiet.")
    ] = "10m",
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Cut a site's work into more or fewer slots.

    FILE is the mesh file by which all sites run, with the site's present slots. First the site
    quiesces: it takes nothing from its egress queues, where applications go on publishing, receives
    nothing, and lets out what it has, until its log is delivered and every neighbour has what is
    for it. Then end its node: this makes the states of the new slots, and says what to write into
    the mesh file of every site. Then `isthmus apply`, and start the node.

    A site that is not quiet within the limit goes on as before, as it does after Ctrl-C. Once the
    node has ended, a change that is cut short is made by running this again; no node starts before.

    Exit status 0; 1 if the slots are not changed, with the reason; 2 if the call is wrong.

    Example: isthmus reslot mesh.yaml paris --slots 4 --place orders=2
    """
    mesh = mesh_or_exit(file, [site])
    site_or_exit(file, mesh, site)
    limit_s = _limit_or_exit(within)
    wanted = _slots_or_exit(mesh, site, slots, place or ())
    folder = site_folder(state, site)
    reslotting = Reslotting(
        folder=folder,
        site=site,
        mesh=_cut(mesh, site, wanted),
        now_ms=lambda: time.time_ns() // 1_000_000,
        random_bytes=os.urandom,
        ledger_writers=FileWriters(),
    )
    try:
        change = reslotting.change()
        if change_under_way(folder) is None:
            site_of_file = mesh.sites[site].slots
            steps = _Steps(mesh, state, reslotting, change, limit_s)
            if steps.is_running:
                if site_of_file != change.former:
                    raise ReslotRefused(
                        f"{file} has {site_of_file} already, and the node runs with"
                        f" {change.former}: put `slots` and `place` back, in the file of every"
                        " site, until this has changed them"
                    )
                steps.quiesce()
            book = address_book_or_exit(mesh, state)
            asyncio.run(_prepare_broker(book, site, change))
            steps.until_ended()
        with only_process(folder):
            carried = asyncio.run(_run(reslotting))
    except (ReslotRefused, NodeStopped, StoreError, StateError, ExportFailed, OSError) as error:
        exit_with(f"{site}: its slots are not changed: {error}", EXIT_FAULT)
    except (AddressError, PasswordMissing) as error:
        exit_with(f"{site}: its slots are not changed: {error}", EXIT_FAULT)
    typer.echo(f"{site} has {wanted} now, {counted(carried, 'key')} carried over")
    typer.echo(_what_to_do(file, site, change))


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps before the node has ended."""

    mesh: Mesh
    state: Path
    reslotting: Reslotting
    change: SlotChange
    limit_s: float

    @property
    def site(self) -> str:
        return self.reslotting.site

    @property
    def is_running(self) -> bool:
        """True if a process serves the site."""
        try:
            with only_process(self.reslotting.folder):
                return False
        except StoreLocked:
            return True

    @property
    def has_ended_quiesced(self) -> bool:
        """True if the node has ended, with nothing under way. Raises StoreError, StateError."""
        try:
            with only_process(self.reslotting.folder):
                return not self.reslotting.why_not_quiesced(self.change)
        except StoreLocked:
            return False

    def quiesce(self) -> None:
        """Order the site to quiesce, and wait until it has. Raises ReslotRefused; the order is
        withdrawn then.
        """
        hold(self.state, self.site, lambda holds: replace(holds, quiescing=True))
        with self._else_as_before():
            asyncio.run(self._until_quiesced())

    def until_ended(self) -> None:
        """Wait until the node has ended."""
        if not self.is_running:
            return
        typer.echo(f"{self.site} is quiesced: end its node; this goes on then", err=True)
        with self._else_as_before():
            while not self.has_ended_quiesced:
                time.sleep(POLL_S)

    @contextmanager
    def _else_as_before(self) -> Iterator[None]:
        """Withdraw the order if what is done inside fails, or is interrupted."""
        with ExitStack() as undoing:
            undoing.callback(
                hold, self.state, self.site, lambda holds: replace(holds, quiescing=False)
            )
            yield
            undoing.pop_all()

    async def _until_quiesced(self) -> None:
        shown, end = "", time.monotonic() + self.limit_s
        while True:
            content = (await status_of(self.mesh, self.state)).content["sites"][self.site]
            states = [one["state"] for one in content.get("slots", [content])]
            word, reason = worst_of(states), content.get("reason") or ""
            if (word == QUIESCED and STANDBY not in states) or self.has_ended_quiesced:
                return
            line = f"{self.site}: {word}{f': {reason}' if reason else ''}"
            if time.monotonic() > end:
                raise ReslotRefused(
                    f"it is not quiet within {show_duration(self.limit_s)}: {reason or word}; it"
                    " goes on as before"
                )
            if line != shown:
                typer.echo(line, err=True)
                shown = line
            await asyncio.sleep(POLL_S)


async def _prepare_broker(book: AddressBook, site: str, change: SlotChange) -> None:
    """Delete former logs of the numbers that slots begin with. Raises ReslotRefused if a slot that
    ends has messages put aside, or the broker cannot be reached.
    """
    try:
        async with declaring(book.administrator(site)) as declarer:
            for slot in change.ended:
                for queue in put_aside_queues(Names(book.mesh.name, slot)):
                    if count := await declarer.waiting(queue):
                        raise ReslotRefused(
                            f"{queue} has {counted(count, 'message')}, and slot {slot} is to end:"
                            " see `isthmus dead-letters` and `isthmus quarantine`"
                        )
            for slot in change.begun:
                # Of the site's earlier slots: a new log begins empty.
                await declarer.delete(Names(book.mesh.name, slot).log)
    except (AMQPException, OSError) as error:
        raise ReslotRefused(f"its broker: {error or type(error).__name__}") from error


async def _run(reslotting: Reslotting) -> int:
    shown = 0

    def progress(keys: int) -> None:
        nonlocal shown
        if keys - shown >= _EVERY_KEYS:
            shown = keys
            typer.echo(f"{reslotting.site}: {keys} keys", err=True)

    try:
        return await reslotting.run(progress)
    finally:
        await reslotting.ledger_writers.close()


def _limit_or_exit(within: str) -> float:
    try:
        return parse_duration(within)
    except BadDuration as error:
        exit_with(f"--within: {error}", EXIT_USAGE)


def _slots_or_exit(mesh: Mesh, site: str, count: int, places: Sequence[str]) -> SlotMap:
    """Return the slots to have; end the command for places that cannot be."""
    if not places:
        kept = {name: at for name, at in mesh.sites[site].slots.place.items() if at < count}
        return SlotMap(count, kept if count > 1 else {})
    found = {}
    for one in places:
        exchange, _, number = one.rpartition("=")
        if exchange not in mesh.exchanges:
            exit_with(f"--place {one}: the mesh has no exchange {exchange!r}", EXIT_USAGE)
        if not number.isdecimal() or int(number) >= count:
            exit_with(f"--place {one}: the slots are 0 to {count - 1}", EXIT_USAGE)
        found[exchange] = int(number)
    return SlotMap(count, found if count > 1 else {})


def _cut(mesh: Mesh, site: str, slots: SlotMap) -> Mesh:
    """Return the mesh in which the site has these slots."""
    return replace(mesh, sites={**mesh.sites, site: replace(mesh.sites[site], slots=slots)})


def _what_to_do(file: Path, site: str, change: SlotChange) -> str:
    keys: dict[str, object] = {"slots": change.new.count}
    if change.new.place:
        keys["place"] = dict(change.new.place)
    written = yaml.safe_dump({site: keys}, default_flow_style=None, sort_keys=False)
    lines = [
        "Write into the mesh file of every site, below `sites:`,",
        *(f"    {line}" for line in written.splitlines()),
        *([] if change.new.place else ["and no `place` of it;"]),
        f"then `isthmus apply {file} --site {site}` and its neighbours, and start its node.",
    ]
    return "\n".join(lines)
