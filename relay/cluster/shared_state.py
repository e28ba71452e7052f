"""Way to a state that the nodes of a site share, as a node opens the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from dedup.journal.journal import Owner
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import SlotCopy
from relay.cluster.coordination import CoordinationRefused
from relay.cluster.slot_turns import CopyProgress, SlotTurns
from relay.node.machine import HeldState, OpenState
from relay.node.start import NodeStopped


def slot_report(store: JournaledStore, owner: Owner, messages_s: int | None) -> dict[str, Any]:
    """Figures of a slot for `isthmus status`."""
    journal = store.journal
    away = journal.away_since
    return {
        "epoch": owner.epoch,
        "messages_s": messages_s,
        "rows": journal.last_row,
        "row_s": median(journal.row_times_s) if journal.row_times_s else None,
        "waiting_bytes": journal.waiting_bytes,
        "journal_away_s": None if away is None else asyncio.get_running_loop().time() - away,
    }


Connect = Callable[[Callable[[str], None]], AbstractAsyncContextManager[SlotTurns]]
"""Connect a node to journal and coordination; the argument is called with what is waited for."""


def shared(
    connect: Connect,
    open_copy: Callable[[Path], SlotCopy],
    progress: CopyProgress,
    held: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> OpenState:
    """Return the way to a state that the site's nodes share: each has a copy in its own folder,
    whose `progress` is noted while the node stands by. `held` is entered once the state is this
    node's, and left before the node gives the state up.
    """

    @asynccontextmanager
    async def open_state(folder: Path, report: Callable[[str], None]) -> AsyncIterator[HeldState]:
        progress.begin()
        try:
            async with connect(report) as turns, _opened(open_copy, folder) as copy:
                await turns.stand_by(copy, report, progress)
                try:
                    store, owner = await turns.take(copy)
                    try:
                        async with held():
                            yield HeldState(
                                store,
                                partial(turns.hold, store, owner),
                                lambda: slot_report(store, owner, turns.messages_s),
                                turns.give_to,
                            )
                    finally:
                        await store.release()
                        store.close()
                finally:
                    await turns.give_up()
        except CoordinationRefused as error:
            raise NodeStopped(str(error)) from error

    return open_state


@asynccontextmanager
async def _opened(open_copy: Callable[[Path], SlotCopy], folder: Path) -> AsyncIterator[SlotCopy]:
    copy = open_copy(folder)
    try:
        yield copy
    finally:
        copy.store.close()
