"""Which batches of a flow wait for a neighbour's log before egress may forget them. Pure.

With `acks: remote` a stretch of egress counts as confirmed when a neighbour's log has its batch.
What egress hands out again after a restart and the own log has already (`returned_prefix`) is not
packed again, and waits in the same way: for the batches that it stands in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from relay.batches.batch import BatchName
from relay.packing.egress_acks import Stretch

WAITING = "waiting for a neighbour's log"


class _Waiting(NamedTuple):
    stretch: Stretch
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

    def logged(self, stretch: Stretch, name: BatchName | None, now: float) -> None:
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
