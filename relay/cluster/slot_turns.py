"""Turns of the nodes of a site at one slot: to follow its journal, to take it, to hold it.

The node that adds the entry `slots/N/owner` should take the slot: then by the journal's next epoch
the slot is the node's, and the entry has only the use that the others wait. A node takes no slot
whose entry is gone before its own session is steady for as long as a session lives: all sessions
may have expired at once, and the owner adds its entry again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dedup.journal.journal import Journal, JournalAway, Owner, SlotFenced, SlotGone
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.journal.snapshot_keeper import USUAL_PACE, SnapshotKeeper, SnapshotPace
from relay import crash_points
from relay.cluster.coordination import (
    Coordination,
    CoordinationAway,
    CoordinationEntry,
    CoordinationRefused,
)
from relay.cluster.journal_moments import JournalMoments
from relay.node.machine import HeldState, OpenState
from relay.node.start import NodeStopped
from relay.retry import Backoff

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 0.25
LOOK_BACK_EVERY_S = 10.0
"""Time between two looks whether rows that a copy lacks were deleted."""
_AGAIN_S = 0.5
_TAKEN_WITHIN_S = 10.0
"""Patience with a journal that is away as a slot is taken: other nodes may reach it."""


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """Node as the others see it. `place` is equal for incarnations that cannot overlap, `run` is
    another one each time.
    """

    node: str
    run: str
    place: str

    def encoded(self) -> bytes:
        fields = {"node": self.node, "run": self.run, "place": self.place}
        return json.dumps(fields, sort_keys=True).encode()

    @classmethod
    def of(cls, entry: CoordinationEntry) -> ClusterMember:
        """Decode an entry; one that this version cannot read is of a node without a name."""
        try:
            fields = json.loads(entry.data)
            return cls(str(fields["node"]), str(fields["run"]), str(fields["place"]))
        except (ValueError, KeyError, TypeError):
            return cls("", "", "")


class CopyProgress:
    """Progress of the copy of a node that stands by."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to stand by, with a copy of which nothing is known yet."""
        self._row: int | None = None
        self._followed_at: float | None = None

    def reached(self, row: int) -> None:
        """Note that the copy has the journal up to its present end, behind `row`."""
        self._row, self._followed_at = row, asyncio.get_running_loop().time()

    def report(self) -> dict[str, Any]:
        """Return the copy's last row, and the seconds since the copy had the journal's end; None
        before the copy has had it.
        """
        at = self._followed_at
        followed_s = None if at is None else asyncio.get_running_loop().time() - at
        return {"row": self._row, "followed_s": followed_s}


class SlotTurns:
    """Turns of one node at one slot."""

    def __init__(
        self,
        *,
        slot: int,
        member: ClusterMember,
        coordination: Coordination,
        journal: Journal,
        session_s: float,
        random_bytes: Callable[[int], bytes],
        random: Callable[[], float],
        snapshots: SnapshotPace = USUAL_PACE,
    ) -> None:
        self._snapshots = snapshots
        self._path = f"slots/{slot}/owner"
        self._presence = f"nodes/{member.node}"
        self._other_since: float | None = None
        """Time since which another machine's node has this node's name; None while none has."""
        self._member = member
        self._coordination = coordination
        self._journal = JournalMoments(journal)
        self._session_s = session_s
        self._random_bytes = random_bytes
        self._backoff = Backoff(0.1, 2.0, random)

    async def retry(self, failures: int) -> None:
        """Wait before the journal is asked again."""
        await asyncio.sleep(self._backoff.delay_s(failures))

    async def _appear(self) -> None:
        """See to it that this node's name is the node's in the ensemble. Raises NodeStopped if the
        name is another machine's.
        """
        seen = await self._coordination.read(self._presence)
        if seen is not None:
            other = ClusterMember.of(seen)
            if other.run == self._member.run:
                return  # or of a former session, and soon gone
            if other.place != self._member.place:
                # Perhaps this machine before it was started anew: its session ends soon.
                if self._other_since is None:
                    self._other_since = self._now()
                if self._now() - self._other_since > 3 * self._session_s:
                    raise NodeStopped(
                        f"another machine runs a node of the name {self._member.node}: give each"
                        " of the site's nodes a name of its own"
                    )
                return
            await self._coordination.remove(self._presence)
        self._other_since = None
        await self._coordination.add(self._presence, self._member.encoded())

    # -- following ---------------------------------------------------------------------------

    async def stand_by(
        self, copy: SlotCopy, report: Callable[[str], None], progress: CopyProgress
    ) -> None:
        """Follow the journal until this node should take the slot."""
        reason = ""
        while True:
            seen: CoordinationEntry | None = None
            try:
                await self._appear()
                seen = await self._coordination.read(self._path)
                if await self._is_claimed(seen):
                    report("")
                    return
            except (CoordinationAway, JournalAway) as error:
                if await self._was_last_owner():
                    return
                text = f"standing by; {error}"
            else:
                owner = "nobody" if seen is None else ClusterMember.of(seen).node
                text = f"standing by: {owner} runs the site"
            if text != reason:
                log.info("%s", text)
                reason = text
                report(text)
            await self._follow(copy, seen, progress)

    async def _is_claimed(self, seen: CoordinationEntry | None) -> bool:
        """Add this node's entry, if it may. Return True if the entry is this node's."""
        if seen is not None:
            holder = ClusterMember.of(seen)
            if holder.run == self._member.run and seen.is_own:
                return True  # added by a call whose answer was lost
            if holder.place != self._member.place:
                return False
            # An incarnation of this node that has ended: two do not run in one folder.
            await self._coordination.remove(self._path)
        elif not self._is_steady() and not await self._may_hurry():
            return False
        # A node that does not reach the journal must not keep the slot from others: JournalAway.
        await self._journal.ownership()
        return await self._coordination.add(self._path, self._member.encoded())

    def _is_steady(self) -> bool:
        since = self._coordination.steady_since
        return since is not None and self._now() - since >= self._session_s

    async def _may_hurry(self) -> bool:
        """Return True if no other node can run the slot: this node was the last, or nobody was."""
        ownership = await self._journal.ownership()
        return ownership is None or ownership.owner.node == self._member.node

    async def _was_last_owner(self) -> bool:
        """Return True if the slot is this node's to take without the ensemble."""
        try:
            ownership = await self._journal.ownership()
        except JournalAway:
            return False
        return ownership is not None and ownership.owner.node == self._member.node

    async def _follow(
        self, copy: SlotCopy, seen: CoordinationEntry | None, progress: CopyProgress
    ) -> None:
        """Keep the copy near the journal's end until the slot's entry may have changed."""
        watching = asyncio.create_task(self._changed(seen))
        # Rows that the copy lacks may have been deleted before this, or while it could not read.
        looks_back_at = self._now()
        try:
            while True:
                with contextlib.suppress(JournalAway):
                    is_behind = self._now() >= looks_back_at
                    await catch_up(self._journal, copy, is_behind=is_behind)
                    if is_behind:
                        looks_back_at = self._now() + LOOK_BACK_EVERY_S
                    progress.reached(copy.last_row)
                done, _ = await asyncio.wait({watching}, timeout=FOLLOW_EVERY_S)
                if done:
                    watching.result()
                    return
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _changed(self, seen: CoordinationEntry | None) -> None:
        try:
            # Free, but not for this node yet, or another has its name: time alone may change it.
            is_soon = seen is None or self._other_since is not None
            async with asyncio.timeout(self._session_s / 2 if is_soon else None):
                await self._coordination.changed(self._path, seen)
        except TimeoutError:
            return
        except CoordinationAway:
            await asyncio.sleep(_AGAIN_S)

    # -- taking ------------------------------------------------------------------------------

    async def take(self, copy: SlotCopy) -> tuple[JournaledStore, Owner]:
        """Take the slot. Raises SlotGone if another node is quicker, or the journal is away for
        long; JournalDamaged.
        """
        began = self._now()

        async def retry(failures: int) -> None:
            if self._now() - began > max(_TAKEN_WITHIN_S, 3 * self._session_s) and failures > 1:
                raise SlotGone("the journal is away as this node takes the slot")
            await self.retry(failures)

        crash_points.reach("turn.claimed")
        run = self._random_bytes(16)
        taking = SlotTaking(self._journal, self._member.node, run, retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, copy)
        log.info(
            "epoch %d begins behind row %d, after %.2f s",
            owner.epoch,
            copy.last_row,
            self._now() - began,
        )
        return JournaledStore(copy, self._journal, owner, self.retry), owner

    # -- holding -----------------------------------------------------------------------------

    async def hold(self, store: JournaledStore, owner: Owner) -> None:
        """Keep this node's entry and write snapshots, for ever. Raises StoreError once the slot is
        another node's, or the journal cannot be written.
        """
        keeper = SnapshotKeeper(self._journal, store.copy, owner.epoch, self._snapshots, self.retry)
        works = {
            asyncio.create_task(store.until_failed()),
            asyncio.create_task(self._keep_entry(owner)),
            asyncio.create_task(keeper.run()),
        }
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            for work in done:
                work.result()
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)

    async def _keep_entry(self, owner: Owner) -> None:
        while True:
            try:
                await self._appear()
                seen = await self._coordination.read(self._path)
                if seen is None:
                    await self._coordination.add(self._path, self._member.encoded())
                elif ClusterMember.of(seen).run == self._member.run and seen.is_own:
                    await self._coordination.changed(self._path, seen)
                else:
                    ownership = await self._journal.ownership()
                    now = None if ownership is None else ownership.owner
                    if now != owner:
                        raise SlotFenced(owner.epoch, now)
                    if ClusterMember.of(seen).place == self._member.place:
                        # Of this node before it began again: once the session of that entry ends, a
                        # node that stands by would be quicker to add its own.
                        await self._coordination.remove(self._path)
                        continue
                    # Another node's that has not taken the slot yet.
                    await asyncio.sleep(_AGAIN_S)
            except (CoordinationAway, JournalAway):
                await asyncio.sleep(_AGAIN_S)

    async def give_up(self) -> None:
        """Remove this node's entry, so that another node need not wait for the session's end."""
        with contextlib.suppress(CoordinationAway):
            seen = await self._coordination.read(self._path)
            if seen is not None and ClusterMember.of(seen).run == self._member.run:
                await self._coordination.remove(self._path)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def slot_report(store: JournaledStore, owner: Owner) -> dict[str, Any]:
    """Figures of a slot for `isthmus status`."""
    journal = store.journal
    away = journal.away_since
    return {
        "epoch": owner.epoch,
        "rows": journal.last_row,
        "waiting_bytes": journal.waiting_bytes,
        "journal_away_s": None if away is None else asyncio.get_running_loop().time() - away,
    }


Connect = Callable[[Callable[[str], None]], AbstractAsyncContextManager[SlotTurns]]
"""Connect a node to journal and coordination; the argument is called with what is waited for."""


def shared(
    connect: Connect, open_copy: Callable[[Path], SlotCopy], progress: CopyProgress
) -> OpenState:
    """Return the way to a state that the site's nodes share: each has a copy in its own folder,
    whose `progress` is noted while the node stands by.
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
                        yield HeldState(
                            store,
                            lambda: turns.hold(store, owner),
                            lambda: slot_report(store, owner),
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
