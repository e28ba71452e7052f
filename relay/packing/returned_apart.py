"""What egress hands out again of a flow whose log is not in egress's order throughout. Pure.

Where messages for different sites wait in batches of their own, the log has them batch after batch.
But what is open for other sites is sealed before a message without an identity is taken. So the log
has each of those behind all that came before it and before all that came later, and what the log
lacks of what was taken came behind all of them that it has. They are compared in their order
(`returned_prefix`), and any other that comes back tells where among them it came: if the log has
it, then also those that came back before it, and the next of them is the next in the log; if not,
no more of them comes. One that names itself is told by its digest alone: its like in the log has
its identity too, and dropping it does what the barriers would do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from relay.packing.returned_prefix import Returned, ReturnedPrefix, TailEntry

Named = Callable[[bytes], bool]
"""(properties as they are logged) -> whether the message has an identity of its own."""


class ReturnedApart:
    """`tail`: the flow's last logged messages; `surely_unacked`: of so many of the last of them no
    ack was ever sent.
    """

    def __init__(
        self,
        tail: Sequence[TailEntry],
        surely_unacked: int,
        named: Named,
        *,
        log_lacks_some: bool,
    ) -> None:
        is_named = [named(entry.properties) for entry in tail]
        unnamed = [entry for entry, has in zip(tail, is_named, strict=True) if not has]
        first_sure = len(tail) - surely_unacked
        sure = sum(not has for has in is_named[first_sure:])
        self._unnamed = ReturnedPrefix(
            unnamed, sure, log_lacks_some=log_lacks_some, is_told_more=True
        )
        self._named: dict[bytes, int | None] = {}
        """By digest, how many of the unnamed stand before it in the log; None: it is there twice,
        not at the same place."""
        before = 0
        for entry, has in zip(tail, is_named, strict=True):
            if has:
                place = self._named.setdefault(entry.digest, before)
                self._named[entry.digest] = before if place == before else None
            else:
                before += 1
        self._new = Returned.MAYBE_LOST if log_lacks_some else Returned.NEW
        self._is_named = named
        self._is_over = not tail and not log_lacks_some
        self._came: deque[Returned | None] = deque()
        """Of all that has come and was not told of: the verdict; None: of an unnamed one, which
        may have one in `_verdicts`."""
        self._verdicts: deque[Returned] = deque()

    @property
    def over(self) -> bool:
        return self._is_over and not self._came

    def take(self, digests: Sequence[bytes], properties: Sequence[bytes]) -> list[Returned]:
        """See ReturnedMessages."""
        for digest, said in zip(digests, properties, strict=True):
            if not self._is_named(said):
                self._came.append(None)
                self._verdicts.extend(self._unnamed.take((digest,)))
                continue
            if digest not in self._named:
                self._came.append(self._new)
                self._verdicts.extend(self._unnamed.none_left())
                continue
            self._came.append(Returned.LOGGED)
            place = self._named[digest]
            if place is not None:
                self._verdicts.extend(self._unnamed.all_logged(place))
        return self._told()

    def fresh(self) -> list[Returned]:
        """See ReturnedMessages."""
        self._is_over = True
        self._verdicts.extend(self._unnamed.fresh())
        return self._told()

    def give_up_waiting(self) -> list[Returned]:
        """See ReturnedMessages."""
        self._verdicts.extend(self._unnamed.give_up_waiting())
        return self._told()

    def _told(self) -> list[Returned]:
        """Verdicts in the order of delivery, up to the first that is still out."""
        told = []
        while self._came:
            verdict = self._came[0]
            if verdict is None:
                if not self._verdicts:
                    break
                verdict = self._verdicts.popleft()
            self._came.popleft()
            told.append(verdict)
        return told
