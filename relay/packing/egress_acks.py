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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.batches.batch import BatchName

HOLD_S = 1.0
"""Seconds an idle queue's last batch stays unacknowledged: longer than an acknowledgement that was
sent can be on its way to a broker that lives, and than a busy disk takes to sync it (a broker that
is killed forgets those that it has not)."""
HOLD_TAGS = 500
"""Most tags kept waiting by a held stretch: a quarter of the prefetch."""


WAITING = "waiting for a neighbour's log"


@dataclass(slots=True)
class TagStretch:
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
        self._stretches: deque[TagStretch] = deque()
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
            self._stretches.append(TagStretch(tag, 0, confirmed_at=float("-inf")))

    def sealed(self, batches: int = 1) -> TagStretch:
        """The open batches are complete: their stretch."""
        stretch = TagStretch(self._open_tag, batches)
        self._open_tag = 0
        self._stretches.append(stretch)
        return stretch

    def due(self, now: float, *, release: bool = False) -> TagStretch | None:
        """Up to where to acknowledge now; None when nothing is due. `release`: hold nothing.

        What is returned counts as acknowledged.
        """
        stretches = self._stretches
        due: TagStretch | None = None
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


class _Waiting(NamedTuple):
    stretch: TagStretch
    name: BatchName | None
    since: float


class RemoteAcks:
    """One flow's, in one incarnation.

    `has` asks the neighbours for a batch. `batches_of_last(n)` names the batches of the flow's last
    n messages that the own log had when the incarnation began.
    """

    def __init__(
        self,
        has: Callable[[BatchName], bool],
        batches_of_last: Callable[[int], Sequence[BatchName]],
        patience_s: float,
    ) -> None:
        self._has = has
        self._batches_of_last = batches_of_last
        self._patience_s = patience_s
        self._waiting: deque[_Waiting] = deque()
        self._recognised = 0
        self._recognised_at = 0.0
        self._past: deque[BatchName] | None = deque()

    @property
    def holds_past(self) -> bool:
        """Whether messages that an earlier incarnation logged may not be acknowledged yet."""
        return self._past is None or bool(self._past)

    @property
    def look_again_at(self) -> float | None:
        """When `look` is due although no neighbour has said anything; None: it is not."""
        return self._recognised_at + self._patience_s if self._past is None else None

    @property
    def waiting_since(self) -> float | None:
        """Since when the oldest waits; None when nothing does."""
        if self.holds_past:
            return self._recognised_at
        return self._waiting[0].since if self._waiting else None

    def logged(self, stretch: TagStretch, name: BatchName | None, now: float) -> None:
        """The own log has confirmed a batch of the stretch; None: no neighbour is to have it."""
        self._waiting.append(_Waiting(stretch, name, now))

    def look(self, now: float, recognised: int, *, compared: bool) -> bool:
        """Confirm the stretches of all that neighbours have by now; whether any may be
        acknowledged at all.

        `recognised` messages came back that the own log has; `compared`: no more will. Which ones
        they are is only known then, or once no more have come for a while: the log's last.
        """
        if recognised != self._recognised:
            self._recognised, self._recognised_at = recognised, now
            self._past = None
        if self._past is None:
            if not compared and now < self._recognised_at + self._patience_s:
                return False
            self._past = deque(self._batches_of_last(recognised))
        while self._past and self._has(self._past[0]):
            self._past.popleft()
        while self._waiting:
            name = self._waiting[0].name
            if name is not None and not self._has(name):
                break
            self._waiting.popleft().stretch.confirm(now)
        return not self._past
