"""Acknowledgements of one egress queue: which messages are due, and up to where. Pure.

Tags are acknowledged cumulatively, so in order: a message that is dropped or was logged earlier
waits for those before. Stretches of tags that went into one batch, or into several closed together,
become due when the log has confirmed them::

    tags   1 2 3 4 5 | 6 7 8 9 | 10 11 12
           batch A     batch B   open
           confirmed   (7 was ours coming round: part of B's stretch)

The last confirmed stretch is *held*: acknowledged once a later stretch is confirmed, or after a
while (`HOLD_S`). A packer killed under load then leaves something logged and certainly not
acknowledged; that comes back, and shows its successor exactly where the log and the queue meet.

With `acks: remote` (`RemoteAcks`) a stretch counts as confirmed when a neighbour's log has its
batch. Messages that egress hands out again after a restart, and that the own log has already
(`returned_prefix`), are not packed again and wait in the same way, for the batches in which they
stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.batches.batch import BatchName

HOLD_S = 1.0
"""Seconds for which an idle queue's last batch stays unacknowledged: longer than a sent
acknowledgement can be on its way to a living broker, and than a busy disk takes to sync the
acknowledgement (a killed broker forgets those not synced)."""
HOLD_TAGS = 500
"""Most tags kept waiting by a held stretch: a quarter of the prefetch."""


WAITING = "waiting for a neighbour's log"


@dataclass(slots=True)
class TagStretch:
    """Consecutive tags, up to `last_tag`, and the batches of their messages: one, or one for each
    destination set.

    The packer fills in the rest: when those batches are appended, and when the log confirms them.
    """

    last_tag: int
    open_batches: int = 1
    """Number of batches that are not confirmed."""
    first_sequence: int = -1
    """Number of the first batch in the incarnation; -1 if no batch has the messages."""
    whole_sequence: int = -1
    """Number of the last batch, or -1 as above."""
    confirmed_at: float | None = None

    def appended(self, whole_sequence: int) -> None:
        """Note that the next batch is on its way to the log."""
        if self.first_sequence < 0:
            self.first_sequence = whole_sequence
        self.whole_sequence = whole_sequence

    def confirm(self, now: float) -> None:
        """Note that a batch, in any order, is confirmed."""
        self.open_batches -= 1
        if not self.open_batches:
            self.confirmed_at = now


class EgressAcks:
    """Acknowledgements of one consumption of one queue: tags begin at 1."""

    def __init__(self) -> None:
        self._stretches: deque[TagStretch] = deque()
        self._open_tag = 0  # last tag in an open batch; 0: none is open
        self._seen = 0
        self._acked = 0

    @property
    def outstanding(self) -> int:
        """Number of messages handed out and not acknowledged."""
        return self._seen - self._acked

    def packed(self, tag: int) -> None:
        """Note that the message went into an open batch."""
        self._seen = self._open_tag = tag

    def passed(self, tag: int) -> None:
        """Note that the messages up to this tag need no batch: they are due with those before."""
        self._seen = tag
        if self._open_tag:
            self._open_tag = tag
        elif self._stretches:
            self._stretches[-1].last_tag = tag
        else:
            self._stretches.append(TagStretch(tag, 0, confirmed_at=float("-inf")))

    def sealed(self, batches: int = 1) -> TagStretch:
        """Close the open batches and return their stretch."""
        stretch = TagStretch(self._open_tag, batches)
        self._open_tag = 0
        self._stretches.append(stretch)
        return stretch

    def due(self, now: float, *, release: bool = False) -> TagStretch | None:
        """Return the last stretch due now, or None if nothing is. `release`: hold nothing back.

        The returned stretch counts as acknowledged.
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
        """Number of the oldest appended batch not acknowledged whole, or None."""
        for stretch in self._stretches:
            if stretch.first_sequence >= 0:
                return stretch.first_sequence
        return None

    @property
    def _nothing_follows(self) -> bool:
        """True if no batch is under way whose confirmation would release the held stretch."""
        return len(self._stretches) == 1 and not self._open_tag

    def next_release(self) -> float | None:
        """Time at which the held stretch becomes due by itself, or None if nothing is held."""
        first = self._stretches[0] if self._stretches else None
        if first is None or first.confirmed_at is None:
            return None
        return first.confirmed_at + HOLD_S


class _Waiting(NamedTuple):
    stretch: TagStretch
    name: BatchName | None
    since: float


class RemoteAcks:
    """Waits of one flow for neighbours' logs, in one incarnation.

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
        """True if messages that an earlier incarnation logged may not be acknowledged yet."""
        return self._past is None or bool(self._past)

    @property
    def look_again_at(self) -> float | None:
        """Time at which `look` is due without news from neighbours, or None if not due."""
        return self._recognised_at + self._patience_s if self._past is None else None

    @property
    def waiting_since(self) -> float | None:
        """Time since which the oldest stretch waits, or None if nothing waits."""
        if self.holds_past:
            return self._recognised_at
        return self._waiting[0].since if self._waiting else None

    def logged(self, stretch: TagStretch, name: BatchName | None, now: float) -> None:
        """Note a batch of the stretch in the own log; name None: for no neighbour."""
        self._waiting.append(_Waiting(stretch, name, now))

    def look(self, now: float, recognised: int, *, compared: bool) -> bool:
        """Confirm the stretches that neighbours have by now; return True if the flow may
        acknowledge at all.

        `recognised` messages came back that the own log has; `compared`: no more will. Only then,
        or once no more have come for a while, is known which: the log's last.
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
