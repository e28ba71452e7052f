"""Sessions of a link's receiver: their nonces, and the state and answers of the present session."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TypeVar

from relay.batches.name_set import NameSet
from relay.links.wire import Ack, Cause, Have, encode_ack, encode_have, encode_over, encode_refused

_MOST_NONCES = 64
_Value = TypeVar("_Value")


class SessionNonces:
    """Nonces offered by a receiver, and nonces of ended sessions: the latest of each kind."""

    def __init__(self) -> None:
        self._offered: OrderedDict[bytes, None] = OrderedDict()
        self._ended: OrderedDict[bytes, bytes] = OrderedDict()

    def offer(self, nonce: bytes) -> None:
        """Note that a WELCOME with the nonce goes out."""
        _keep(self._offered, nonce, None)

    def take_up(self, nonce: bytes) -> bool:
        """Return True if the nonce was offered; no second session begins with it."""
        if nonce not in self._offered:
            return False
        del self._offered[nonce]
        return True

    def forget_offers(self) -> None:
        self._offered.clear()

    def end(self, nonce: bytes, over: bytes) -> None:
        """Note the end of the nonce's session. `over` is the frame that informs the sender."""
        _keep(self._ended, nonce, over)

    def has_ended(self, nonce: bytes) -> bool:
        return nonce in self._ended

    def over_of(self, nonce: bytes) -> bytes:
        """Return the frame that informs the sender of the end of a session."""
        return self._ended[nonce]

    def forget_ends(self) -> None:
        self._ended.clear()


def _keep(nonces: OrderedDict[bytes, _Value], nonce: bytes, value: _Value) -> None:
    nonces[nonce] = value
    nonces.move_to_end(nonce)
    if len(nonces) > _MOST_NONCES:
        nonces.popitem(last=False)


@dataclass(slots=True)
class ReceiverSession:
    """State of one session. Numbers are of the session's batches, from 1."""

    number: int
    nonce: bytes
    run: bytes
    """Run of the log: each run has sessions of its own."""
    version: int
    """Version of the link protocol that both ends use."""
    arrived: int = 0
    logged: int = 0
    acked: int = 0
    acked_at: float = 0.0
    unacked_bytes: int = 0
    waiting: deque[int] = field(default_factory=deque)
    """Sizes of batches that have arrived and are not logged, in order of number."""
    early: set[int] = field(default_factory=set)
    """Numbers logged before an earlier number."""
    echo_ms: int = 0
    otherwise: dict[bool, NameSet] = field(default_factory=dict)
    """Names that the log has got otherwise, and the sender has not been informed of; True: those
    that the mesh's group has just brought.
    """

    def note_arrival(self, size: int) -> None:
        """Note that the batch with the next number has arrived."""
        self.arrived += 1
        self.waiting.append(size)

    def done(self, number: int) -> None:
        """Note that the log has the number's batch, or will never have it."""
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
        """Return the ACK of all that is done, which counts as sent now."""
        ack = Ack(self.nonce, self.run, self.logged, self.arrived, wall_ms, self.echo_ms)
        self.echo_ms = 0
        self.acked = self.logged
        self.unacked_bytes = 0
        self.acked_at = now
        return encode_ack(self.version, ack)

    def have(self) -> list[bytes]:
        """Return the HAVE of all that has come otherwise since the last one."""
        otherwise, self.otherwise = self.otherwise, {}
        return [
            encode_have(self.version, Have(self.nonce, self.run, by_group, names.encode()))
            for by_group, names in otherwise.items()
        ]

    def refused(self, number: int, reason: str) -> bytes:
        return encode_refused(self.version, self.nonce, self.run, number, reason)

    def over(self, cause: Cause, number: int, reason: str) -> bytes:
        return encode_over(self.version, self.nonce, self.run, cause, number, reason)
