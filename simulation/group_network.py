"""Network of a mesh's multicast group: it loses, delays and repeats datagrams; it outlives all
processes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextvars import copy_context

from federation.mesh import MulticastGroup
from relay.group.carrier import GroupUnreachable, OnDatagram
from relay.group.datagram import sealed_as
from relay.group.memory_carrier import MemoryCarrier, MemoryGroup
from simulation.invariants import InvariantBroken

LOSSES = (0.0, 0.0, 0.001, 0.01, 0.05)
DISTANCE_S = (0.0002, 0.02)
"""Delay between a site and the middle of the network: from, to."""
JITTERS_S = (0.0, 0.0005, 0.005)
"""Most that a datagram comes later than another, which may overtake it."""
TWICE = (0.0, 0.0, 0.01)
_LOOP_S = 0.0001
"""Delay of a datagram that comes back to its own machine."""


class GroupNetwork:
    """Network of one group. Nodes are members by their names."""

    def __init__(self, nodes: Iterable[str], chance: random.Random) -> None:
        self.usual_loss = self.loss = chance.choice(LOSSES)
        """Share of the datagrams that each member does not get."""
        self.deaf: set[str] = set()
        """Nodes that get none."""
        self.broken: InvariantBroken | None = None
        """Violation by the first datagram whose nonce was used before."""
        self._sealed: set[bytes] = set()
        self._jitter_s = chance.choice(JITTERS_S)
        self._twice = chance.choice(TWICE)
        self._chance = chance
        self._distances_s = {node: chance.uniform(*DISTANCE_S) for node in nodes}
        self._unasked = 0
        self._outside = copy_context()
        self._group = MemoryGroup(self._later, self._delays)

    @property
    def is_there(self) -> bool:
        """False while nothing can be sent, and nobody can join."""
        return self._group.is_there

    @is_there.setter
    def is_there(self, is_there: bool) -> None:
        self._group.is_there = is_there

    def join(self, node: str, group: MulticastGroup, interface: str) -> NodeCarrier:
        """Return the membership of a node's process. Raises GroupUnreachable."""
        return NodeCarrier(self._group.join(node), self._look_at)

    def join_unasked(self) -> NodeCarrier:
        """Return the membership of one who is no site, in the middle of the network. Raises
        GroupUnreachable.
        """
        self._unasked += 1
        return NodeCarrier(self._group.join(f"unasked {self._unasked}"), lambda datagram: None)

    def _look_at(self, datagram: bytes) -> None:
        """Look whether the sender has sealed another datagram under the same key and counter."""
        sealed = sealed_as(datagram)
        if sealed in self._sealed and self.broken is None:
            self.broken = InvariantBroken(f"I9: two datagrams were sealed as {sealed.hex()}")
        self._sealed.add(sealed)

    def _later(self, delay_s: float, call: Callable[[], None]) -> object:
        # On its way a datagram is in no process: a sender that freezes does not hold it up.
        return asyncio.get_running_loop().call_later(delay_s, call, context=self._outside)

    def _delays(self, sender: str, receiver: str) -> list[float]:
        if sender == receiver:
            return [_LOOP_S]
        chance = self._chance
        if receiver in self.deaf or chance.random() < self.loss:
            return []
        way_s = sum(self._distances_s.get(one, 0.0) for one in (sender, receiver))
        copies = 1 + (chance.random() < self._twice)
        return [way_s + self._jitter_s * chance.random() for _ in range(copies)]


class NodeCarrier:
    """`GroupCarrier` of one process, which hears nothing while it is frozen, and all of it then."""

    def __init__(self, carrier: MemoryCarrier, on_sent: OnDatagram) -> None:
        self._carrier = carrier
        self._on_sent = on_sent
        self._is_open = True

    def listen(self, on_datagram: OnDatagram) -> None:
        context = copy_context()

        def take(datagram: bytes) -> None:
            if self._is_open:
                on_datagram(datagram)

        def arrive(datagram: bytes) -> None:
            asyncio.get_running_loop().call_soon(take, datagram, context=context)

        self._carrier.listen(arrive)

    def send(self, datagram: bytes) -> None:
        if not self._is_open:
            raise GroupUnreachable("the process has left the group")
        self._on_sent(datagram)
        self._carrier.send(datagram)

    def close(self) -> None:
        self._is_open = False
        self._carrier.close()
