"""Messages that a cluster's egress hands out again, in any order, compared with the log. Pure.

The queue keeps the messages in hand of a consumer at a lost broker node until that node counts as
gone, and meanwhile serves the packer's next connection: so older messages may come behind newer
ones, in pieces, with new messages between. Places decide nothing then; content and count do. Like
messages are interchangeable: of n alike in the log, of which m were certainly not acknowledged, the
first m that come again are in the log, the next n - m may be, and any more are new, unless this
incarnation has had one alike::

    logged        a b b c        (certainly not acknowledged: the last b, and c)
    comes back    c b x b b a
    verdicts      L L N ? ? ?    (logged, new, maybe logged: the third b is like the second)

A cluster that misses a node for a moment gives messages back to the very consumer that has them in
hand, so the messages of this incarnation, packed or not, may come too.

A named message is recognised by its digest alone: the logged message has the same identity, and
dropping the returned message does what the barriers would do.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from relay.packing.comeback.returned_apart import Named
from relay.packing.comeback.returned_prefix import PREFETCH, ReturnVerdict, TailEntry


class ReturnedInAnyOrder:
    """Comparison with `tail`, the flow's last logged messages; the last `surely_unacked` of these
    were certainly never acknowledged. See ReturnedMessages; every verdict comes at once.
    """

    def __init__(
        self,
        tail: Sequence[TailEntry],
        surely_unacked: int,
        named: Named,
        *,
        log_lacks_some: bool,
    ) -> None:
        split = len(tail) - (0 if log_lacks_some else surely_unacked)
        # A message that may have expired need not come back; a later like one would take its turn.
        self._surely = Counter(entry.digest for entry in tail[split:] if not entry.may_expire)
        self._perhaps = Counter(entry.digest for entry in tail)
        self._perhaps.subtract(self._surely)
        self._is_named = named
        self._named_once = {entry.digest for entry in tail if entry.is_named}
        self._new = ReturnVerdict.MAYBE_LOST if log_lacks_some else ReturnVerdict.NEW
        self._over = not tail and not log_lacks_some
        self._had: deque[bytes] = deque(maxlen=PREFETCH)

    @property
    def notes_fresh(self) -> bool:
        return True

    def note(self, digest: bytes) -> None:
        self._had.append(digest)

    @property
    def over(self) -> bool:
        return self._over

    def take(self, digests: Sequence[bytes], properties: Sequence[bytes]) -> list[ReturnVerdict]:
        return list(map(self.late, digests, properties))

    def fresh(self) -> list[ReturnVerdict]:
        self._over = True
        return []

    def give_up_waiting(self) -> list[ReturnVerdict]:
        return []

    def late(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        verdict = self._of_predecessors(digest, properties)
        if verdict is ReturnVerdict.NEW and digest in self._had:
            verdict = ReturnVerdict.MAYBE_LOGGED
        self._had.append(digest)
        return verdict

    def _of_predecessors(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        if digest not in self._perhaps:
            return self._new
        if self._is_named(properties):
            return ReturnVerdict.LOGGED
        if digest in self._named_once:
            # By an earlier mesh file its like had an identity, and was perhaps dropped for that.
            return ReturnVerdict.MAYBE_LOGGED
        for left, verdict in (
            (self._surely, ReturnVerdict.LOGGED),
            (self._perhaps, ReturnVerdict.MAYBE_LOGGED),
        ):
            if left[digest] > 0:
                left[digest] -= 1
                return verdict
        return self._new
