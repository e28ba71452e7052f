"""The nonces by which a link's receiver knows sessions: those offered, and those that ended."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

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
