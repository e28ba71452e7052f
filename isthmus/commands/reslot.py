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

from dedup.store import StoreError
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.amqp_declare import declaring
from federation.brokers.users import put_aside_queues
from federation.mesh import Mesh
from federation.mesh_file import PasswordMissing
from federation.mesh_file.quantities import BadDuration, parse_duration, show_duration
from federation.names import Names
from federation.slots import MOST_SLOTS, SlotMap
from federation.wording import counted
from isthmus.display import key_progress
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
from isthmus.reslot_sites import ReslotSite, reslot_site
from isthmus.status import status_of
from isthmus.up.announcements import running_mesh
from relay.ledger.file_writer import ExportFailed, FileWriters
from relay.node.site_folder import QUIESCED, STANDBY, site_folder
from relay.node.site_slots import worst_of
from relay.node.start import NodeStopped
from relay.operator.holds import HoldsBroken
from relay.reslot.reslotting import ReslotRefused, Reslotting
from relay.reslot.slot_change import SlotChange
from relay.state.node_state import StateError

POLL_S = 0.5
_EVERY_KEYS = 1_000_000
_WRITER_LINGERS_S = 10.0
"""Time for which the process that writes ledger files waits for the next slot's."""
_NOT_CHANGED = (
    *(ReslotRefused, NodeStopped, StoreError, StateError, ExportFailed, HoldsBroken, OSError),
    *(AddressError, PasswordMissing),
)


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
            help="Slot of an exchange; may be repeated, for all that are placed. "
            "Default: as FILE says, where it fits.",
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
    for it. Then end its node, or all its nodes: this makes the states of the new slots, and says
    what to write into the mesh file of every site. Then `isthmus apply`, and start the nodes.

    A site that is not quiet within the limit goes on as before, as it does after Ctrl-C. Once the
    nodes have ended, a change that is cut short is made by running this again, on the same machine;
    no node starts before.

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
        ledger_writers=FileWriters(_WRITER_LINGERS_S),
    )
    book = address_book_or_exit(mesh, state)
    one = reslot_site(reslotting, book)
    try:
        change = one.find_change()
        if not one.is_under_way():
            quiescing = _Quiescing(file, mesh, site, state, one, limit_s)
            if one.is_running():
                _check_file(file, mesh.sites[site].slots, change.former)
                with quiescing.else_as_before():
                    quiescing.quiesce()
                    _prepare(book, site, one, change)
                    quiescing.until_ended()
            else:
                one.check_ended()
                _prepare(book, site, one, change)
        moved = one.run(key_progress(site, _EVERY_KEYS))
    except _NOT_CHANGED as error:
        exit_with(f"{site}: its slots are not changed: {error}", EXIT_FAULT)
    typer.echo(f"{site} has {wanted} now, {counted(moved, 'key')} moved")
    typer.echo(_what_to_do(file, site, change, one.nodes))


def _check_file(file: Path, slots: SlotMap, former: SlotMap) -> None:
    """Raise ReslotRefused if the file has other slots than the nodes run with."""
    if slots != former:
        raise ReslotRefused(
            f"{file} has {slots}, and the site runs with {former}: put `slots` and `place` back, in"
            " the file of every site, until this has changed them"
        )


@dataclass(frozen=True, slots=True)
class _Quiescing:
    """Order to quiesce, and what is waited for after the order."""

    file: Path
    mesh: Mesh
    site: str
    state: Path
    one: ReslotSite
    limit_s: float

    def quiesce(self) -> None:
        """Order the site to quiesce, and wait until it has. Raises ReslotRefused."""
        hold(self.state, self.site, lambda holds: replace(holds, quiescing=True))
        asyncio.run(self._until_quiesced())

    def until_ended(self) -> None:
        """Wait until the nodes have ended."""
        by = ""
        if running_mesh(self.state) is not None:
            by = f", by `isthmus down {self.file} --site {self.site}`"
        text = f"{self.site} is quiesced: end {self.one.nodes}{by}; this goes on then"
        typer.echo(text, err=True)
        self.one.until_ended()

    @contextmanager
    def else_as_before(self) -> Iterator[None]:
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
            if word == QUIESCED and STANDBY not in states:
                return
            if word in ("down", "stopped") and await self.one.has_ended():
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


def _prepare(book: AddressBook, site: str, one: ReslotSite, change: SlotChange) -> None:
    """Prepare the broker for a change, unless another command has made one meanwhile."""
    if one.find_change() != change:
        raise ReslotRefused("another command changes them: look at its end, then run this again")
    asyncio.run(_prepare_broker(book, site, change))


async def _prepare_broker(book: AddressBook, site: str, change: SlotChange) -> None:
    """Delete former logs of the numbers that slots begin with. Raises ReslotRefused if a slot that
    ends, or that an exchange leaves, has messages put aside, or the broker cannot be reached.
    """
    left = {
        change.former.of(name, partition)
        for name, exchange in book.mesh.exchanges.items()
        for partition in range(exchange.partitions)
        if change.moves(name, partition)
    }
    try:
        async with declaring(book.administrator(site)) as declarer:
            for slot in sorted(left.union(change.ended)):
                for queue in put_aside_queues(Names(book.mesh.name, slot)):
                    if count := await declarer.waiting(queue):
                        raise ReslotRefused(
                            f"{queue} has {counted(count, 'message')}, perhaps of an exchange that"
                            " gets another slot: send them again or drop them first, by `isthmus"
                            " dead-letters` and `isthmus quarantine`"
                        )
            for slot in change.begun:
                # Of the site's earlier slots: a new log begins empty.
                await declarer.delete(Names(book.mesh.name, slot).log)
    except (AMQPException, OSError) as error:
        raise ReslotRefused(f"its broker: {error or type(error).__name__}") from error


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
        if mesh.exchanges[exchange].partitions > 1:
            exit_with(
                f"--place {one}: the partitions of {exchange!r} are spread over the slots by "
                "themselves",
                EXIT_USAGE,
            )
        if not number.isdecimal() or int(number) >= count:
            exit_with(f"--place {one}: the slots are 0 to {count - 1}", EXIT_USAGE)
        found[exchange] = int(number)
    return SlotMap(count, found if count > 1 else {})


def _cut(mesh: Mesh, site: str, slots: SlotMap) -> Mesh:
    """Return the mesh in which the site has these slots."""
    return replace(mesh, sites={**mesh.sites, site: replace(mesh.sites[site], slots=slots)})


def _what_to_do(file: Path, site: str, change: SlotChange, nodes: str) -> str:
    keys: dict[str, object] = {"slots": change.new.count}
    if change.new.place:
        keys["place"] = dict(change.new.place)
    written = yaml.safe_dump({site: keys}, default_flow_style=None, sort_keys=False)
    lines = [
        "Write into the mesh file of every site, below `sites:`,",
        *(f"    {line}" for line in written.splitlines()),
        *([] if change.new.place else ["and no `place` of it;"]),
        f"then `isthmus apply {file} --site {site}` and its neighbours, and start {nodes}.",
    ]
    return "\n".join(lines)
