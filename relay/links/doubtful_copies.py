"""Batches that the receiver called damaged: which of them are to be marked, so that it puts them
aside instead of asking again for ever.
"""

from __future__ import annotations

from relay.batches.batch import BatchName
from relay.batches.format import BadBatch, verify_digest

_MOST = 1024


class DoubtfulCopies:
    """One link's. `most_tries`: sessions in which an intact one is tried before it is given up."""

    def __init__(self, most_tries: int) -> None:
        self._most_tries = most_tries
        self._called_bad: dict[BatchName, int] = {}

    def called_bad(self, name: BatchName) -> None:
        """The receiver ended a session over it."""
        if len(self._called_bad) < _MOST:
            self._called_bad[name] = self._called_bad.get(name, 0) + 1

    def settled(self, name: BatchName) -> None:
        """The receiver has refused it for good."""
        self._called_bad.pop(name, None)

    def is_to_be_marked(self, name: BatchName, data: bytes) -> bool:
        """Whether the batch is sent as one that was called bad before."""
        times = self._called_bad.get(name)
        if times is None:
            return False
        # A copy that is bad here too will never get better; an intact one may have been damaged
        # on its way.
        try:
            verify_digest(data)
        except BadBatch:
            return True
        return times >= self._most_tries
