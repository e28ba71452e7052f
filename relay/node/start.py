"""First steps of a node: does its state folder match the deliverer's mark in the site's broker?

The mark is the position up to which the deliverer has got. A state folder behind the mark was lost,
or put back from an older copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from relay.batches.batch import Place
from relay.delivery.context import POSITION
from relay.log.knowledge import UnknownRecord
from relay.log.site_log import SiteLog, SiteLogError
from relay.log.writer import LogWriter
from relay.state.node_state import FIRST_MARK, Commit, Loaded, NodeState, StateVerdict, judge_state

T = TypeVar("T")

log = logging.getLogger(__name__)

STATE_LOST_HINT = "`isthmus recover FILE --site SITE` rebuilds it from the site's log"
ASK_AGAIN_S = 0.5
MARKED = "deliverer mark"
"""Name, among the positions of the node's state, of the place that was marked last."""
RECOVERED_PAST = "recovered past"
"""Key, in the node's state, of the mark up to which retention had eaten everything when the state
was rebuilt."""


class NodeStopped(Exception):
    """The node cannot go on, and no restart helps. `reason` has the remedy."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def unreadable(error: UnknownRecord) -> str:
    """Reason for a node to stop if another version of this program has written to its log."""
    return (
        f"this site's log has, at offset {error.offset}, {error.reason}: start the version of"
        " Isthmus that ran here before; nothing was taken from there on, and nothing is lost"
    )


async def begin_with(
    state: NodeState,
    loaded: Loaded,
    writer: LogWriter,
    kept: str,
    report: Callable[[str], None],
    random_bytes: Callable[[int], bytes],
    confirm: Callable[[], Awaitable[None]],
) -> None:
    """Begin to use the state, which is in what `kept` names. `report` is called with what is waited
    for, and with an empty text once nothing is. `confirm` raises SlotGone if the state is another
    node's by now.

    Raises NodeStopped if the state is lost, or older than what the site has delivered.
    """
    mark = await _answer(
        writer, "asking the broker for its mark", lambda own: own.load_mark(), report
    )
    verdict = judge_state(not state.is_new, reached_offset(loaded, state, writer), mark)
    if verdict in (StateVerdict.LOST, StateVerdict.OLDER_THAN_MARK):
        # Another node may have gone on with the state while this one was frozen.
        await confirm()
    if verdict is StateVerdict.LOST:
        raise NodeStopped(
            f"{kept} is empty, but this site has delivered messages before: {STATE_LOST_HINT}"
        )
    if verdict is StateVerdict.OLDER_THAN_MARK:
        raise NodeStopped(
            f"{kept} is older than what this site has delivered (a restored "
            f"copy?): {STATE_LOST_HINT}"
        )
    state.begin(random_bytes(16))
    await state.store.synced()
    if mark is None:
        # Before the first delivery, so that the loss of the folder is noticed from now on.
        await _answer(writer, "leaving a mark", lambda own: own.store_mark(FIRST_MARK), report)


async def _answer(
    writer: LogWriter,
    step: str,
    ask: Callable[[SiteLog], Awaitable[T]],
    report: Callable[[str], None],
) -> T:
    """Ask until there is an answer; meanwhile report which step fails and why."""
    while True:
        try:
            answer = await ask(await writer.connected())
        except SiteLogError as error:
            report(f"{step}: {error}")
            await asyncio.sleep(ASK_AGAIN_S)
        else:
            report("")
            return answer


class DelivererMark:
    """Deliverer's mark of one site. The node's state announces a mark before the broker has it,
    since a position alone may go back behind the mark, where the log has lost its end and got it
    again.
    """

    def __init__(
        self,
        state: NodeState,
        writer: LogWriter,
        position: Callable[[], Place | None],
        marked: Place | None,
    ) -> None:
        """`position` stores the deliverer's position and returns it; `marked` is the mark in the
        state.
        """
        self._state = state
        self._writer = writer
        self._position = position
        self._announced = self._stored = marked
        """`_announced` is the mark in the state, never lowered, since the broker may have the mark
        whatever was answered; `_stored` is the mark that the broker surely has.
        """

    async def store(self, within_s: float) -> None:
        """Store in the broker how far this state folder has got: see *State lost* in the docs."""
        position = self._position()
        if position is None or not self._is_new(position, self._stored):
            return
        try:
            async with asyncio.timeout(within_s):
                site_log = await self._writer.connected()
                # The log may have lost its end, and the position with it, while the broker was
                # away: by a mark past the rest, the next start would take this folder for an old
                # copy.
                kept = self._writer.safe_position(position)
                if kept is None or kept.offset < position.offset:
                    return
                if self._is_new(position, self._announced):
                    announcing = Commit()
                    announcing.position(MARKED, position)
                    await self._state.write_synced(announcing)
                    self._announced = position
                await site_log.store_mark(position.offset)
        except (SiteLogError, TimeoutError) as error:
            log.info(
                "the mark was not stored, the next round does it: %s",
                str(error) or f"no answer within {within_s:g} s",
                extra={"event": "mark-not-stored"},
            )
            return
        self._stored = position

    def _is_new(self, position: Place, than: Place | None) -> bool:
        known = _in_this_log(than, self._writer)
        return known is None or position.offset > known


def reached_offset(loaded: Loaded, state: NodeState, writer: LogWriter) -> int | None:
    """Offset in the present log up to which this state may have had a mark stored, or None if the
    deliverer has no position there.
    """
    position = loaded.positions.get(POSITION)
    known = position.offset if position else recovered_past(state)
    marked = _in_this_log(loaded.positions.get(MARKED), writer)
    return known if marked is None else max(marked, known or 0)


def recovered_past(state: NodeState) -> int | None:
    """Mark up to which nothing was left in the log when this state was rebuilt, or None."""
    kept = state.get(RECOVERED_PAST)
    return None if kept is None else int(kept)


def _in_this_log(place: Place | None, writer: LogWriter) -> int | None:
    """Offset of a place, or None if the log was made anew since, which has no marks from before."""
    return None if place is None or writer.before_losses(place) is None else place.offset
