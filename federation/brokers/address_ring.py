"""Order in which the addresses of one cluster are tried. Pure.

Each purpose (a site's egress, its log, one end of a link) has a ring of its own, so that purposes
spread over the cluster's nodes, and an address that works is kept.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

A = TypeVar("A", bound=Hashable)


SHORT_S = 60.0
"""Shortest life of a connection after which the same node is tried first again. A shorter
connection may have been to a node of a minority, which admits clients and can serve none: since 4.0
such a node answers a declaration after 30 s, with an error.
"""


def _never_open() -> float | None:
    return math.inf


class AddressRing(Generic[A]):
    """Memory of the address that worked last. `first`: index, counted round, of the address to
    begin with before any has worked.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._last: A | None = None
        self._lasted_s: Callable[[], float | None] = _never_open
        self._is_one_of_several = False

    def order(self, addresses: Sequence[A]) -> tuple[A, ...]:
        """Return the order of the next attempt: each address once, beginning with the address that
        worked last, or ending with it if its connection was short.
        """
        known = tuple(dict.fromkeys(addresses))
        self._is_one_of_several = len(known) > 1
        if not known:
            return ()
        if self._last in known:
            start = known.index(self._last) + self._was_short
        else:
            start = self._first
        start %= len(known)
        return known[start:] + known[:start]

    @property
    def _was_short(self) -> bool:
        lasted_s = self._lasted_s()
        return lasted_s is not None and lasted_s < SHORT_S

    def worked(self, address: A, lasted_s: Callable[[], float | None] = _never_open) -> None:
        """Record a connection to `address`. `lasted_s` returns how long the connection lasted: None
        while the connection is open, 0 if the node was lost.
        """
        self._last, self._lasted_s = address, lasted_s

    @property
    def in_use(self) -> A | None:
        """Address of the present connection, or None without a connection."""
        return self._last if self._lasted_s() is None else None

    @property
    def in_use_of_several(self) -> A | None:
        """Address of the present connection, or None if there is no connection or no choice of
        addresses.
        """
        return self.in_use if self._is_one_of_several else None


class AddressRings(Generic[A]):
    """Rings by purpose, made on demand. `home` names their owner, so that different sites begin at
    different addresses.
    """

    def __init__(self, home: str = "") -> None:
        self._turn = zlib.crc32(home.encode())
        self._rings: dict[str, AddressRing[A]] = {}

    def of(self, purpose: str) -> AddressRing[A]:
        """Return the ring of a purpose, the same ring each time."""
        if purpose not in self._rings:
            self._rings[purpose] = AddressRing(self._turn + len(self._rings))
        return self._rings[purpose]

    def in_use(self) -> Mapping[str, A]:
        """Addresses of present connections by purpose, where there were several to choose from."""
        found = {name: ring.in_use_of_several for name, ring in self._rings.items()}
        return {name: address for name, address in found.items() if address is not None}
