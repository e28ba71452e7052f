"""How far a site's deliverer has got, as its broker remembers it.

By this a state folder is known that is lost, or was put back from an older copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from relay.batches.batch import Place
from relay.delivery.context import POSITION
from relay.log.site_log import SiteLogError
from relay.log.writer import LogWriter
from relay.node.recovery import recovered_past
from relay.state.node_state import Commit, Loaded, NodeState

log = logging.getLogger(__name__)

MARKED = "deliverer mark"
"""Name, among the positions of the node's state, of the place that was marked last."""


class DelivererMark:
    """One site's. Before the broker has a mark, the node's state says that it is to have it: a
    position alone may go back behind one, where what a log had lost has come again.
    """

    def __init__(
        self,
        state: NodeState,
        writer: LogWriter,
        position: Callable[[], Place | None],
        marked: Place | None,
    ) -> None:
        """`position`: what the deliverer has stored; `marked`: as the state has it."""
        self._state = state
        self._writer = writer
        self._position = position
        self._announced = self._stored = marked
        """In the state: never lowered, since the broker may have it whatever was answered. And what
        the broker surely has."""

    async def store(self, within_s: float) -> None:
        """Tell the broker how far this state folder has got: see *State lost* in the docs."""
        position = self._position()
        if position is None or not self._is_new(position, self._stored):
            return
        try:
            async with asyncio.timeout(within_s):
                site_log = await self._writer.connected()
                # While it was away, the log may have lost its end and the place with it: a mark
                # past what is kept would have the next start take this folder for an old copy.
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
            )
            return
        self._stored = position

    def _is_new(self, position: Place, than: Place | None) -> bool:
        known = _in_this_log(than, self._writer)
        return known is None or position.offset > known


def reached(loaded: Loaded, state: NodeState, writer: LogWriter) -> int | None:
    """The offset in the present log up to which this state may have had it marked; None: it has
    been nowhere there.
    """
    position = loaded.positions.get(POSITION)
    known = position.offset if position else recovered_past(state)
    marked = _in_this_log(loaded.positions.get(MARKED), writer)
    return known if marked is None else max(marked, known or 0)


def _in_this_log(place: Place | None, writer: LogWriter) -> int | None:
    """Its offset; None where the log has been made anew since, and its marks are gone with it."""
    return None if place is None or writer.before_losses(place) is None else place.offset
