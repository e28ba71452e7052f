"""Messages handed out again of a flow whose log is not in egress's order throughout. Pure.

Where messages for different sites wait in batches of their own, the log has the messages batch
after batch. But open batches for other sites are sealed before a message without an identity is
taken. So the log has each unnamed message behind all that came before and ahead of all that came
later, and any message that the log lacks came behind all of these: unnamed messages are compared
among themselves, in order (`returned_prefix`). A named message is recognised by its digest alone:
the like message in the log has the same identity, and dropping the returned message does what the
barriers would do.

Named messages prove nothing about unnamed ones. A named message that the log has may be a copy that
its publisher sent later; a named message that the log lacks may be such a copy too, dropped by an
earlier incarnation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from relay.packing.comeback.returned_prefix import ReturnedPrefix, ReturnVerdict, TailEntry

Named = Callable[[bytes], bool]
"""(properties as logged) -> True if the message has an identity by the present mesh file."""


class ReturnedApart:
    """Comparison with `tail`, the flow's last logged messages; the last `surely_unacked` of these
    were certainly never acknowledged. See ReturnedMessages.
    """

    def __init__(
        self,
        tail: Sequence[TailEntry],
        surely_unacked: int,
        named: Named,
        *,
        log_lacks_some: bool,
    ) -> None:
        # Names may differ by an earlier mesh file. Messages named then need not be in order;
        # messages named now are recognised by their digests.
        in_order = [not entry.is_named and not named(entry.properties) for entry in tail]
        unnamed = [entry for entry, is_unnamed in zip(tail, in_order, strict=True) if is_unnamed]
        sure = sum(in_order[len(tail) - surely_unacked :])
        self._unnamed = ReturnedPrefix(unnamed, sure, log_lacks_some=log_lacks_some)
        self._others = {
            entry.digest for entry, is_unnamed in zip(tail, in_order, strict=True) if not is_unnamed
        }
        self._new = ReturnVerdict.MAYBE_LOST if log_lacks_some else ReturnVerdict.NEW
        self._is_named = named
        self._is_over = not tail and not log_lacks_some
        self._came: deque[ReturnVerdict | None] = deque()
        """Verdicts of all messages without an answer so far; None for an unnamed message, which may
        have a verdict in `_verdicts`."""
        self._verdicts: deque[ReturnVerdict] = deque()

    @property
    def notes_fresh(self) -> bool:
        return False

    def note(self, digest: bytes) -> None:
        """Ignore the message: a broker of one node gives nothing back to a living consumer."""

    @property
    def over(self) -> bool:
        return self._is_over and not self._came

    def take(self, digests: Sequence[bytes], properties: Sequence[bytes]) -> list[ReturnVerdict]:
        unnamed = []
        for digest, logged_properties in zip(digests, properties, strict=True):
            if self._is_named(logged_properties):
                self._came.append(ReturnVerdict.LOGGED if digest in self._others else self._new)
            elif digest in self._others:
                self._came.append(ReturnVerdict.MAYBE_LOGGED)
            else:
                self._came.append(None)
                unnamed.append(digest)
        if unnamed:
            self._verdicts.extend(self._unnamed.take(unnamed))
        return self._next_verdicts()

    def fresh(self) -> list[ReturnVerdict]:
        self._is_over = True
        self._verdicts.extend(self._unnamed.fresh())
        return self._next_verdicts()

    def give_up_waiting(self) -> list[ReturnVerdict]:
        self._verdicts.extend(self._unnamed.give_up_waiting())
        return self._next_verdicts()

    def late(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        if digest not in self._others:
            return self._unnamed.late(digest)
        return ReturnVerdict.LOGGED if self._is_named(properties) else ReturnVerdict.MAYBE_LOGGED

    def _next_verdicts(self) -> list[ReturnVerdict]:
        """Verdicts in the order of delivery, up to the first undecided message."""
        verdicts = []
        while self._came:
            verdict = self._came[0]
            if verdict is None:
                if not self._verdicts:
                    break
                verdict = self._verdicts.popleft()
            self._came.popleft()
            verdicts.append(verdict)
        return verdicts
