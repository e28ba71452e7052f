"""Slots, the parts that a site's work is cut into. Pure.

A slot has its own egress queues, log, links' strands, deliverer, barrier and state, and shares
nothing with the site's other slots. All messages of an exchange, or of a partition of an exchange,
are in the same slot of a site, so that no identity is judged in two, and no flow is in two. The
slot follows from the exchange's name by a hash, unless the mesh file places the exchange.

Between two sites a link has a strand for each pair of slots that some exchange may have. The
strands follow from the slots of both sites alone, whatever exchanges there are: for numbers of
which each is a multiple of the smaller there are as many as the larger number says.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

MOST_SLOTS = 64
_DIGEST_BYTES = 4


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Slots of one site, which count from 0."""

    count: int = 1
    place: Mapping[str, int] = field(default_factory=dict)
    """Exchange -> slot, where the mesh file says so."""

    def of(self, exchange: str, partition: int = 0) -> int:
        """Return the slot of a partition of an exchange, also of an exchange that the mesh file
        lacks. The partitions of an exchange are in consecutive slots.
        """
        if self.count == 1:
            return 0
        placed = None if partition else self.place.get(exchange)
        return (_hash(exchange) + partition) % self.count if placed is None else placed

    def __str__(self) -> str:
        placed = ", ".join(f"{name} in {slot}" for name, slot in sorted(self.place.items()))
        count = "one slot" if self.is_whole else f"{self.count} slots"
        return f"{count} ({placed})" if placed else count

    @property
    def is_whole(self) -> bool:
        """True if the site's work is not cut."""
        return self.count == 1


ONE_SLOT = SlotMap()


class SlotPair(NamedTuple):
    """Slots at both ends of a link's strand."""

    sender: int
    receiver: int
    digest: str
    """Digest of both sites' slots, in hexadecimal. Ends with different slots have other names for
    the strand and so never meet: neither takes what the other would put into another slot.
    """

    def __str__(self) -> str:
        return f"s{self.sender}-{self.receiver}.{self.digest}"


def slot_pairs(sender: SlotMap, receiver: SlotMap) -> tuple[SlotPair, ...]:
    """Return the pairs of slots that an exchange may have at the two sites, sorted; none where both
    sites have one slot.
    """
    if sender.is_whole and receiver.is_whole:
        return ()
    pairs = {
        (number % sender.count, number % receiver.count)
        for number in range(math.lcm(sender.count, receiver.count))
    }
    for exchange in {*sender.place, *receiver.place}:
        pairs.add((sender.of(exchange), receiver.of(exchange)))
    digest = _digest(sender, receiver)
    return tuple(SlotPair(*pair, digest) for pair in sorted(pairs))


@lru_cache(maxsize=4096)
def _hash(exchange: str) -> int:
    return int.from_bytes(hashlib.blake2b(exchange.encode(), digest_size=8).digest())


def _digest(sender: SlotMap, receiver: SlotMap) -> str:
    both = [[one.count, dict(one.place)] for one in (sender, receiver)]
    written = json.dumps(both, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode(), digest_size=_DIGEST_BYTES).hexdigest()
