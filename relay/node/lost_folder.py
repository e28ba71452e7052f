"""A new state folder for a site that has lost its own, or was given an old copy of it.

The former one is kept beside it as `state.lost-N`. The new one gets its name when all of it is on
the disk: whatever ends this before leaves a node that still knows its state to be lost.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

from federation.brokers.addresses import AddressBook
from relay.batches.incarnation import VoidTable
from relay.batches.known_formats import KNOWN, Formats
from relay.delivery.context import DeliveryCounters
from relay.ledger.members import RevisionMembers
from relay.ledger.revisions import KeptRevisions
from relay.log.knowledge import UnknownRecord
from relay.log.run import LogEvents, LogState
from relay.node.brokers import Brokers, RabbitBrokers
from relay.node.machine import open_state
from relay.node.parts import NodeParts
from relay.node.recovery import Recovered, rebuild
from relay.node.site_folder import MEMBERS, REVISIONS, STATE
from relay.node.stage_order import StageTasks
from relay.node.start import NodeStopped, unreadable
from relay.operator.gaps import forget_gaps
from relay.operator.holds import Holds
from relay.state.node_state import NodeState

log = logging.getLogger(__name__)


async def recover(
    site: str,
    book: AddressBook,
    folder: Path,
    formats: Formats = KNOWN,
    brokers: Brokers | None = None,
) -> Recovered:
    """Make the state in the site's `folder` anew from its log and the broker's mark. The node must
    not run. Raises StoreError, SiteLogError, NodeStopped.
    """
    state = folder / STATE
    if state.exists():
        open_state(state).close()  # nobody else has it
        number = 1
        while (kept := folder / f"{STATE}.lost-{number}").exists():
            number += 1
        state.rename(kept)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"{STATE}.recovering"
    shutil.rmtree(unfinished, ignore_errors=True)
    store = open_state(unfinished)
    try:
        found = await _rebuild(
            NodeState(store), site, book, folder, formats, brokers or RabbitBrokers(site)
        )
    finally:
        store.close()
    unfinished.rename(state)
    forget_gaps(folder)
    return found


async def _rebuild(
    state: NodeState,
    site: str,
    book: AddressBook,
    folder: Path,
    formats: Formats,
    brokers: Brokers,
) -> Recovered:
    retired = KeptRevisions(folder / REVISIONS).retired(book.mesh)
    members = RevisionMembers(folder / MEMBERS)
    members.load([book.mesh, *retired])
    parts = NodeParts(
        site, book, retired, Holds(), False, DeliveryCounters(), formats, brokers=brokers
    )
    ending = asyncio.Event()
    unknown: list[UnknownRecord] = []

    def on_unknown(error: UnknownRecord) -> None:
        unknown.append(error)
        ending.set()

    def on_state(now: LogState, reason: str) -> None:
        if now is LogState.CONNECTING and reason:
            log.warning("%s: log: %s", site, reason)

    # Records that are no batches stay in the log: whoever had this state has put them aside.
    events = LogEvents(lambda *_: None, lambda _: None, on_state, on_unknown)
    writer = parts.writer(state, events)
    tasks = StageTasks(site, ending)
    tasks.begin("log", writer.run_forever())
    try:
        if not await tasks.until(writer.running()):
            raise NodeStopped(unreadable(unknown[0]))
        mark = await (await writer.connected()).load_mark()
        state.begin(parts.machine.random_bytes(16))
        context, _ = parts.context(state, state.load(), writer, VoidTable())
        context.absent = members.absent(book.mesh)
        return await rebuild(context, mark)
    finally:
        await writer.close()
        await tasks.over()
