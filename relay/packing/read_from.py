"""From where on a successor has to read the log: as late as all that egress may still hand out
stands behind it. Pure.

Every half second the packer notes where the log was, and what of this run had been handed to it by
then: each later batch stands behind that place. A note holds as the place once all those batches
are settled and have been for a while, since an acknowledgement may be lost with its connection.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

SETTLED_S = 30.0
"""What was acknowledged so long ago on a connection that lives will not come back."""
LATE_S = 150.0
"""Longest time before a cluster gives back a lost consumer's messages: RabbitMQ misses a node
after 60 to 75 s (`net_ticktime`), and 4.3 keeps its consumers' messages for 60 s more unless the
queue says otherwise (`consumer_disconnected_timeout`), as an egress made before the cluster."""


class ReadFrom(NamedTuple):
    """Batches of the run up to `after` may stand before `offset`."""

    offset: int = 0
    after: int = -1


@dataclass(slots=True)
class _Note:
    at: float
    offset: int
    appended: int


class ReadFromSearch:
    """One incarnation's. Times in seconds."""

    def __init__(self) -> None:
        self.place = ReadFrom()
        self._hold_until = -math.inf
        self._settled_s = SETTLED_S
        self._notes: deque[_Note] = deque()

    def begin(self, place: ReadFrom, late_until: float | None = None) -> None:
        """Begin with the place from which on the messages of predecessors stand. At a cluster more
        of these may come back until `late_until`: the place stays until acknowledgements of the
        last are settled, and a lost node may have swallowed acknowledgements for as long.
        """
        self.place = place
        if late_until is not None:
            self._hold_until = late_until + LATE_S
            self._settled_s = LATE_S

    def note(self, now: float, offset: int, appended: int) -> None:
        """The log has `offset`, and batches up to `appended` of this run were handed to it."""
        self._notes.append(_Note(now, offset, appended))

    def advance(self, now: float, first_unsettled: int) -> bool:
        """Batches before `first_unsettled` are acknowledged; whether the place moved."""
        before = self.place
        if now < self._hold_until:
            return False
        while self._notes and self._notes[0].at <= now - self._settled_s:
            if self._notes[0].appended >= first_unsettled:
                break
            note = self._notes.popleft()
            self.place = ReadFrom(note.offset, note.appended)
        return self.place != before
