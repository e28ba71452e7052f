"""Which messages of one egress queue may be acknowledged, and up to where. Pure.

Tags are acknowledged cumulatively, so in order: a message that is dropped or was logged earlier
waits for those before it. Stretches of tags that went into one batch, or into several that were
closed together, become due when the log has confirmed them::

    tags   1 2 3 4 5 | 6 7 8 9 | 10 11 12
           batch A     batch B   open
           confirmed   (7 was ours coming round: it belongs to B's stretch)

The last confirmed stretch is *held*: acknowledged once a later one is confirmed, or after a while
(`HOLD_S`). A packer that is killed under load then leaves something logged that it has certainly
not acknowledged; it comes back, and tells its successor exactly where the log and the queue meet.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

HOLD_S = 1.0
"""Seconds an idle queue's last batch stays unacknowledged: longer than an acknowledgement that was
sent can be on its way to a broker that lives, and than a busy disk takes to sync it (a broker that
is killed forgets those that it has not)."""
HOLD_TAGS = 500
"""Most tags kept waiting by a held stretch: a quarter of the prefetch."""


@dataclass(slots=True)
class Stretch:
    """Consecutive tags, up to `last_tag`, and the batches that their messages are in: one, or one
    for each destination set.

    The packer fills in the rest: when it appends those batches, and when the log confirms them.
    """

    last_tag: int
    open_batches: int = 1
    """Of its batches, those that are not confirmed."""
    first_sequence: int = -1
    """Of its first batch in the incarnation; -1: none of the messages is in one of this run."""
    whole_sequence: int = -1
    """Of its last batch; -1 as above."""
    confirmed_at: float | None = None

    def appended(self, whole_sequence: int) -> None:
        """The next of its batches is on its way to the log."""
        if self.first_sequence < 0:
            self.first_sequence = whole_sequence
        self.whole_sequence = whole_sequence

    def confirm(self, now: float) -> None:
        """One of its batches, in any order, is confirmed."""
        self.open_batches -= 1
        if not self.open_batches:
            self.confirmed_at = now


class EgressAcks:
    """One consumption of one queue: tags begin at 1."""

    def __init__(self) -> None:
        self._stretches: deque[Stretch] = deque()
        self._open_tag = 0  # last tag that belongs to an open batch; 0: there is none open
        self._seen = 0
        self._acked = 0

    @property
    def outstanding(self) -> int:
        """Messages handed out and not acknowledged."""
        return self._seen - self._acked

    def packed(self, tag: int) -> None:
        """The message went into an open batch."""
        self._seen = self._open_tag = tag

    def passed(self, tag: int) -> None:
        """The messages up to here need no batch: they may go as soon as those before them."""
        self._seen = tag
        if self._open_tag:
            self._open_tag = tag
        elif self._stretches:
            self._stretches[-1].last_tag = tag
        else:
            self._stretches.append(Stretch(tag, 0, confirmed_at=float("-inf")))

    def sealed(self, batches: int = 1) -> Stretch:
        """The open batches are complete: their stretch."""
        stretch = Stretch(self._open_tag, batches)
        self._open_tag = 0
        self._stretches.append(stretch)
        return stretch

    def due(self, now: float, *, release: bool = False) -> Stretch | None:
        """Up to where to acknowledge now; None when nothing is due. `release`: hold nothing.

        What is returned counts as acknowledged.
        """
        stretches = self._stretches
        due: Stretch | None = None
        up_to = self._acked
        while stretches:
            first = stretches[0]
            if first.confirmed_at is None:
                break
            followed = len(stretches) > 1 and stretches[1].confirmed_at is not None
            if not (
                followed
                or release
                or first.whole_sequence < 0
                or now >= first.confirmed_at + HOLD_S
                or (self._nothing_follows and first.last_tag - up_to > HOLD_TAGS)
            ):
                break
            due = stretches.popleft()
            up_to = due.last_tag
        if due is None or up_to == self._acked:
            return None
        self._acked = up_to
        return due

    @property
    def oldest_whole_sequence(self) -> int | None:
        """Of the oldest appended batch with an unacknowledged message; None without one."""
        for stretch in self._stretches:
            if stretch.first_sequence >= 0:
                return stretch.first_sequence
        return None

    @property
    def _nothing_follows(self) -> bool:
        """No batch is under way whose confirmation would release what is held."""
        return len(self._stretches) == 1 and not self._open_tag

    def next_release(self) -> float | None:
        """When what is held becomes due by itself; None when nothing is held."""
        first = self._stretches[0] if self._stretches else None
        if first is None or first.confirmed_at is None:
            return None
        return first.confirmed_at + HOLD_S
