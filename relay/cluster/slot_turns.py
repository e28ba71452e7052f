"""Turns of the nodes of a site at one slot: to follow its journal, to take it, to hold it.

The node that adds the entry `slots/N/owner` should take the slot: then by the journal's next epoch
the slot is the node's, and the entry has only the use that the others wait. A node takes no slot
whose entry is gone before its own session is steady for as long as a session lives: all sessions
may have expired at once, and the owner adds its entry again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from dedup.journal.journal import Journal, JournalAway, Owner, SlotFenced, SlotGone
from dedup.journal.journaled_store import JournaledStore
from dedup.journal.slot_copy import SlotCopy
from dedup.journal.slot_taking import SlotTaking, catch_up
from dedup.journal.snapshot_keeper import USUAL_PACE, SnapshotKeeper, SnapshotPace
from relay import crash_points
from relay.cluster.coordination import (
    CoordinationAway,
    CoordinationEntry,
    CoordinationRefused,
)
from relay.cluster.journal_moments import JournalMoments
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.cluster.slot_load import SlotLoad
from relay.node.machine import GivingRefused
from relay.retry import Backoff
from relay.waiters import until_first_ends

log = logging.getLogger(__name__)

FOLLOW_EVERY_S = 0.25
FOLLOW_IDLE_S = 1.0
"""Time between two looks at a journal that has nothing new: many slots may be quiet."""
_LOOKS_TO_LEAVE = 2
LOOK_BACK_EVERY_S = 10.0
"""Time between two looks whether rows that a copy lacks were deleted."""
_AGAIN_S = 0.5
_BALANCE_EVERY_S = 2.0
_RESTS_S = 5.0
"""Time for which nothing has moved, before a slot is moved to even numbers out."""
_LOAD_RESTS_S = 30.0
"""Time of rest before a move by loads alone, which are known some time after a move."""
_WANTED_S = 600.0
"""Time for which a slot waits for the copy of the node that is to get it."""
_TAKEN_WITHIN_S = 10.0
"""Patience with a journal that is away as a slot is taken: other nodes may reach it."""


class CopyProgress:
    """Progress of the copy of a node that stands by."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to stand by, with a copy of which nothing is known yet."""
        self._row: int | None = None
        self._followed_at: float | None = None
        self._is_kept = True

    def leave(self) -> None:
        """Note that other nodes keep the slot's copies, and this node none."""
        self.begin()
        self._is_kept = False

    def reached(self, row: int) -> None:
        """Note that the copy has the journal up to its present end, behind `row`."""
        self._row, self._followed_at = row, asyncio.get_running_loop().time()
        self._is_kept = True

    def report(self) -> dict[str, Any] | None:
        """Return the copy's last row, and the seconds since the copy had the journal's end; None
        before the copy has had it. Return None where other nodes keep the copies.
        """
        if not self._is_kept:
            return None
        at = self._followed_at
        followed_s = None if at is None else asyncio.get_running_loop().time() - at
        return {"row": self._row, "followed_s": followed_s}


class SlotTurns:
    """Turns of one node at one slot."""

    def __init__(
        self,
        *,
        slot: int,
        site: SiteEntries,
        journal: Journal,
        random_bytes: Callable[[int], bytes],
        random: Callable[[], float],
        snapshots: SnapshotPace = USUAL_PACE,
    ) -> None:
        self._snapshots = snapshots
        self._slot = slot
        self._site = site
        self._journal = JournalMoments(journal)
        self._random_bytes = random_bytes
        self._backoff = Backoff(0.1, 2.0, random)
        self._free_since: float | None = None
        """Time since which nobody has the slot's entry, as far as was seen."""
        self._is_warm = False
        """True while the entries say that this node could take the slot at once."""
        self._is_kept: bool | None = None
        """True if this node follows the journal; None: nobody has said so yet."""
        self._looks_without = 0
        """Number of looks in a row by which other nodes keep the copies."""
        self._wanted: tuple[str, float] | None = None
        """Node that gets the slot once its copy has the journal's end, and until when."""
        self._given_to: tuple[str, bool] | None = None
        """Node that gets the slot next, and whether an operator said so."""
        self._giving = asyncio.Event()
        self._load = SlotLoad()

    @property
    def messages_s(self) -> int | None:
        """Messages a second that the slot handles; None while this node has not measured them."""
        return self._load.shown

    @property
    def _node(self) -> str:
        return self._site.member.node

    async def retry(self, failures: int) -> None:
        """Wait before the journal is asked again."""
        await asyncio.sleep(self._backoff.delay_s(failures))

    # -- following ---------------------------------------------------------------------------

    async def stand_by(
        self, copy: SlotCopy, report: Callable[[str], None], progress: CopyProgress
    ) -> None:
        """Follow the journal until this node should take the slot."""
        self._site.stay()
        reason = ""
        while True:
            seen: CoordinationEntry | None = None
            try:
                await self._site.appear()
                seen = await self._site.owner(self._slot)
                if await self._is_claimed(seen):
                    report("")
                    self._is_warm = False
                    self._site.without_journal.discard(self._slot)
                    await self._site.copy_ends(self._slot)
                    return
            except (CoordinationAway, JournalAway) as error:
                if await self._was_last_owner():
                    self._site.without_journal.discard(self._slot)
                    return
                text = f"standing by; {error}"
            else:
                owner = "nobody" if seen is None else ClusterMember.of(seen).node
                text = f"standing by: {owner} runs {self._what}"
            if text != reason:
                log.info("%s", text, extra={"event": "slot-standing-by"})
                reason = text
                report(text)
            await self._follow(copy, seen, progress)

    @property
    def _what(self) -> str:
        return f"slot {self._slot}" if self._site.has_several_slots else "the site"

    async def _is_claimed(self, seen: CoordinationEntry | None) -> bool:
        """Add this node's entry, if it may. Return True if the entry is this node's."""
        if seen is not None:
            self._free_since = None
            holder = ClusterMember.of(seen)
            if holder.run == self._site.member.run and seen.is_own:
                return True  # added by a call whose answer was lost
            if holder.place != self._site.member.place:
                return False
            # An incarnation of this node that has ended: two do not run in one folder.
            await self._site.remove_owner(self._slot)
        elif not await self._is_turn():
            return False
        # A node that does not reach the journal must not keep the slot from others: JournalAway.
        await self._journal.ownership()
        return await self._site.claim(self._slot)

    async def _is_turn(self) -> bool:
        """Return True if this node should take the slot, which nobody has."""
        # A slot that was given away is not taken back by a node that was the last owner.
        wished = await self._site.wished(self._slot)
        if wished in ("", self._node) and await self._may_hurry():
            return True
        if not self._site.is_steady:
            return False
        if self._free_since is None:
            self._free_since = _now()
        # A taker that does not come, as its journal is away, is not waited for any longer.
        if _now() - self._free_since > self._site.session_s:
            return True
        return await self._site.taker(self._slot) == self._node

    async def _may_hurry(self) -> bool:
        """Return True if no other node should run the slot: this node was the last, or nobody was.
        Of several slots that nobody has had the nodes take some each.
        """
        ownership = await self._journal.ownership()
        if ownership is None:
            return not self._site.has_several_slots
        return ownership.owner.node == self._node

    async def _was_last_owner(self) -> bool:
        """Return True if the slot is this node's to take without the ensemble."""
        try:
            ownership = await self._journal.ownership()
        except JournalAway:
            return False
        return ownership is not None and ownership.owner.node == self._node

    async def _follow(
        self, copy: SlotCopy, seen: CoordinationEntry | None, progress: CopyProgress
    ) -> None:
        """Keep the copy near the journal's end until the slot's entry may have changed."""
        watching = asyncio.create_task(self._changed(seen))
        # Rows that the copy lacks may have been deleted before this, or while it could not read.
        looks_back_at, wait_s = _now(), FOLLOW_EVERY_S
        if self._is_kept is None:
            self._is_kept = bool(copy.journal)  # nobody may say for long, with the ensemble away
        try:
            while True:
                is_behind, last = _now() >= looks_back_at, copy.last_row
                if is_behind:
                    await self._look_who_keeps()
                try:
                    if self._is_kept:
                        await catch_up(self._journal, copy, is_behind=is_behind)
                    elif self._slot in self._site.without_journal:
                        await self._journal.ownership()  # or nobody would see that it is back
                except JournalAway:
                    self._site.without_journal.add(self._slot)
                    await self._note_copy(is_warm=False)
                else:
                    self._site.without_journal.discard(self._slot)
                    if self._is_kept:
                        progress.reached(copy.last_row)
                    else:
                        progress.leave()
                    is_idle = copy.last_row == last
                    wait_s = min(2 * wait_s, FOLLOW_IDLE_S) if is_idle else FOLLOW_EVERY_S
                    if is_behind:
                        looks_back_at = _now() + LOOK_BACK_EVERY_S
                    is_warm = self._is_kept and self._site.is_fit
                    await self._note_copy(is_warm=is_warm, again=is_behind)
                done, _ = await asyncio.wait({watching}, timeout=wait_s)
                if done:
                    watching.result()
                    return
        finally:
            watching.cancel()
            await asyncio.wait({watching})

    async def _look_who_keeps(self) -> None:
        """Look whether this node should follow the journal; all stays as it is if nobody knows."""
        with contextlib.suppress(CoordinationAway):
            if await self._site.keeps_copy(self._slot):
                self._is_kept, self._looks_without = True, 0
                return
            # Not at once: nodes that were cut off from the ensemble appear one after the other.
            self._looks_without += 1
            if self._looks_without >= _LOOKS_TO_LEAVE:
                self._is_kept = False

    async def _note_copy(self, *, is_warm: bool, again: bool = False) -> None:
        """Note whether this node could take the slot at once; `again`, as entries go with a
        session.
        """
        if is_warm == self._is_warm and not again:
            return
        with contextlib.suppress(CoordinationAway):
            if is_warm:
                await self._site.appear()
                await self._site.copy_is_warm(self._slot)
                # Whoever takes a slot goes by what was seen before.
                await self._site.view(LOOK_BACK_EVERY_S / 2)
            else:
                await self._site.copy_ends(self._slot)
            self._is_warm = is_warm

    async def _changed(self, seen: CoordinationEntry | None) -> None:
        try:
            # Free, but not for this node yet, or another has its name: time alone may change it.
            is_soon = seen is None or self._site.is_name_in_use
            async with asyncio.timeout(self._site.session_s / 2 if is_soon else None):
                await self._site.owner_changed(self._slot, seen)
        except TimeoutError:
            return
        except CoordinationAway:
            await asyncio.sleep(_AGAIN_S)

    # -- taking ------------------------------------------------------------------------------

    async def take(self, copy: SlotCopy) -> tuple[JournaledStore, Owner]:
        """Take the slot. Raises SlotGone if another node is quicker, or the journal is away for
        long; JournalDamaged.
        """
        began = _now()

        async def retry(failures: int) -> None:
            if _now() - began > max(_TAKEN_WITHIN_S, 3 * self._site.session_s) and failures > 1:
                raise SlotGone("the journal is away as this node takes the slot")
            await self.retry(failures)

        crash_points.reach("turn.claimed")
        run = self._random_bytes(16)
        taking = SlotTaking(self._journal, self._node, run, retry)
        owner = await taking.raise_epoch()
        await taking.read_and_begin(owner, copy)
        log.info(
            "%s: epoch %d begins behind row %d, after %.2f s",
            self._what,
            owner.epoch,
            copy.last_row,
            _now() - began,
            extra={"event": "slot-taken"},
        )
        return JournaledStore(copy, self._journal, owner, self.retry), owner

    # -- holding -----------------------------------------------------------------------------

    async def hold(
        self,
        store: JournaledStore,
        owner: Owner,
        give_up: Callable[[], None],
        handled: Callable[[], int | None],
    ) -> None:
        """Keep this node's entry, show the slot's load and write snapshots, for ever; call
        `give_up` once another node is to have the slot. `handled` counts the slot's messages, and
        returns None while the slot does not run yet. Raises StoreError once the slot is another
        node's, or the journal cannot be written.
        """
        self._load = SlotLoad()
        keeper = SnapshotKeeper(self._journal, store.copy, owner.epoch, self._snapshots, self.retry)
        await until_first_ends(
            asyncio.create_task(store.until_failed()),
            asyncio.create_task(self._keep_entry(owner)),
            asyncio.create_task(self._give_in_time(give_up, handled)),
            asyncio.create_task(keeper.run()),
        )

    async def _keep_entry(self, owner: Owner) -> None:
        while True:
            try:
                await self._site.appear()
                seen = await self._site.owner(self._slot)
                if seen is None:
                    await self._site.claim(self._slot)
                elif ClusterMember.of(seen).run == self._site.member.run and seen.is_own:
                    await self._site.owner_changed(self._slot, seen)
                else:
                    ownership = await self._journal.ownership()
                    now = None if ownership is None else ownership.owner
                    if now != owner:
                        raise SlotFenced(owner.epoch, now)
                    if ClusterMember.of(seen).place == self._site.member.place:
                        # Of this node before it began again: once the session of that entry ends, a
                        # node that stands by would be quicker to add its own.
                        await self._site.remove_owner(self._slot)
                        continue
                    # Another node's that has not taken the slot yet.
                    await asyncio.sleep(_AGAIN_S)
            except (CoordinationAway, JournalAway):
                await asyncio.sleep(_AGAIN_S)

    async def _give_in_time(
        self, give_up: Callable[[], None], handled: Callable[[], int | None]
    ) -> None:
        """Call `give_up` once this node is to give the slot away: by an order, to balance, or as
        the node cannot run it. Show the slot's load meanwhile.
        """
        if self._site.has_several_slots:
            with contextlib.suppress(CoordinationAway):
                await self._site.want(self._slot, "")  # an order to this node's turn before
        while self._site.has_several_slots and not self._giving.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BALANCE_EVERY_S):
                    await self._giving.wait()
            if not self._giving.is_set():
                with contextlib.suppress(CoordinationAway):
                    await self._show_load(handled())
                    await self._give_if_wanted()
                    await self._give_if_better()
        await self._giving.wait()
        give_up()
        await asyncio.Event().wait()

    async def _show_load(self, handled: int | None) -> None:
        if handled is not None:
            self._load.measure(handled, _now())
        if self._load.shown is not None:
            await self._site.show_load(self._slot, self._load.shown)

    async def _give_if_wanted(self) -> None:
        """Order the slot to the node that an operator wants it at, once that node's copy has the
        journal's end; forget the order after a while.
        """
        if self._wanted is None:
            return
        node, until = self._wanted
        view = await self._site.view(_BALANCE_EVERY_S / 2)
        if node in view.slots[self._slot].copies:
            self._given_to = (node, True)
            self._giving.set()
            return
        if _now() > until:
            self._wanted = None
        await self._site.want(self._slot, "" if self._wanted is None else node)

    async def _give_if_better(self) -> None:
        """Order the slot away if another node should have it now."""
        if self._giving.is_set() or self._site.giving:
            return  # a slot that ends still counts as this node's
        view = await self._site.view(_BALANCE_EVERY_S / 2)
        if self._site.unchanged_s < max(_RESTS_S, self._site.session_s):
            return
        is_fit, given = self._site.is_fit, None
        if is_fit:
            given = view.to_give(self._node)
            is_for_load = given is not None and not view.evens_numbers(*given)
            if is_for_load and self._site.unchanged_s < _LOAD_RESTS_S:
                return
        elif self._site.is_cut_off:
            given = view.to_give_up(self._node)
        if given is None or given[0] != self._slot:
            return
        # Where the broker was away for all, a node that has it again first is no better.
        if is_fit or not await self._site.look_if_fit():
            log.info("slot %d goes to %s", *given, extra={"event": "slot-given"})
            self._given_to = (given[1], False)
            self._site.giving.add(self._slot)
            self._giving.set()

    async def give_to(self, node: str) -> None:
        """Give the slot to another node: an operator's order. Raises GivingRefused."""
        try:
            view = await self._site.view(0)
            if node in view.nodes - {self._node, *view.slots[self._slot].copies}:
                await self._site.want(self._slot, node)
        except (CoordinationAway, CoordinationRefused) as error:
            raise GivingRefused(f"nobody knows which nodes are there: {error}") from error
        if node == self._node:
            raise GivingRefused(f"{node} has {self._what}")
        if node not in view.nodes:
            raise GivingRefused(
                f"there is no node {node}; the site has {', '.join(sorted(view.nodes))} now"
            )
        if node not in view.slots[self._slot].copies:
            self._wanted = (node, _now() + _WANTED_S)
            raise GivingRefused(
                f"{node} has not read the journal of {self._what} to its end: it gets the slot"
                f" as soon as it has, within {_WANTED_S / 60:g} minutes"
            )
        self._given_to = (node, True)
        self._giving.set()

    async def give_up(self) -> None:
        """Remove this node's entry, so that another node need not wait for the session's end."""
        given_to, self._given_to = self._given_to, None
        self._giving.clear()
        self._site.giving.discard(self._slot)
        with contextlib.suppress(CoordinationAway):
            seen = await self._site.owner(self._slot)
            if seen is None or ClusterMember.of(seen).run != self._site.member.run:
                return
            if given_to is None:
                # This node ends, or its stages begin again: another one goes on meanwhile.
                await self._site.leave()
                given_to = (await self._site.taker_beside(self._slot), False)
            node, is_pinned = given_to
            await self._site.give(self._slot, node, is_pinned=is_pinned)


def _now() -> float:
    return asyncio.get_running_loop().time()
