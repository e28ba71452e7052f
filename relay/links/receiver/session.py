"""One session of a link's receiver: what only it knows, and what it says."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TypeVar

from relay.links.wire import Ack, Cause, encode_ack, encode_over, encode_refused

_MOST = 64
_Value = TypeVar("_Value")


class SessionNonces:
    """One receiver's, the last ones of each kind."""

    def __init__(self) -> None:
        self._offered: OrderedDict[bytes, None] = OrderedDict()
        self._ended: OrderedDict[bytes, bytes] = OrderedDict()

    def offer(self, nonce: bytes) -> None:
        """A WELCOME goes out with it."""
        _keep(self._offered, nonce, None)

    def take_up(self, nonce: bytes) -> bool:
        """Whether it was offered; no second session begins with it."""
        if nonce not in self._offered:
            return False
        del self._offered[nonce]
        return True

    def forget_offers(self) -> None:
        self._offered.clear()

    def end(self, nonce: bytes, over: bytes) -> None:
        """Its session is over; `over` is what tells the sender so, if it is to be told."""
        _keep(self._ended, nonce, over)

    def has_ended(self, nonce: bytes) -> bool:
        return nonce in self._ended

    def over_of(self, nonce: bytes) -> bytes:
        """What tells the sender of the end of a session that has ended."""
        return self._ended[nonce]

    def forget_ends(self) -> None:
        self._ended.clear()


def _keep(nonces: OrderedDict[bytes, _Value], nonce: bytes, value: _Value) -> None:
    nonces[nonce] = value
    nonces.move_to_end(nonce)
    if len(nonces) > _MOST:
        nonces.popitem(last=False)


@dataclass(slots=True)
class ReceiverSession:
    """Numbers are those of the session's batches, from 1."""

    number: int
    nonce: bytes
    run: bytes
    """Of the log: with another one begins another session."""
    version: int
    """Of the link, in which both ends speak."""
    arrived: int = 0
    logged: int = 0
    acked: int = 0
    acked_at: float = 0.0
    unacked_bytes: int = 0
    waiting: deque[int] = field(default_factory=deque)
    """Sizes of what has arrived and is not logged, in order of number."""
    early: set[int] = field(default_factory=set)
    """Numbers logged before an earlier one."""
    echo_ms: int = 0

    def note_arrival(self, size: int) -> None:
        """The next number, a batch of so many bytes, has arrived."""
        self.arrived += 1
        self.waiting.append(size)

    def done(self, number: int) -> None:
        """The log has this number's batch, or will never have it."""
        if number != self.logged + 1:
            self.early.add(number)
            return
        while True:
            self.logged += 1
            self.unacked_bytes += self.waiting.popleft()
            if self.logged + 1 not in self.early:
                return
            self.early.remove(self.logged + 1)

    def ack(self, now: float, wall_ms: int) -> bytes:
        """The ACK of all that is done, which counts as sent now."""
        ack = Ack(self.nonce, self.run, self.logged, self.arrived, wall_ms, self.echo_ms)
        self.echo_ms = 0
        self.acked = self.logged
        self.unacked_bytes = 0
        self.acked_at = now
        return encode_ack(self.version, ack)

    def refused(self, number: int, reason: str) -> bytes:
        return encode_refused(self.version, self.nonce, self.run, number, reason)

    def over(self, cause: Cause, number: int, reason: str) -> bytes:
        return encode_over(self.version, self.nonce, self.run, cause, number, reason)
