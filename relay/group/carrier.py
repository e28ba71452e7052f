"""Seam to the network of a group: datagrams to all sites, none of which need arrive.

Twins: `udp_carrier.UdpCarrier` and `memory_carrier.MemoryCarrier`; one contract suite runs over
both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnDatagram = Callable[[bytes], None]


class GroupUnreachable(Exception):
    """The machine cannot send to the group, or not hear it. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GroupCarrier(Protocol):
    """One site's membership of a group. A datagram that is sent may come to any member, the sender
    included, once, more often, late or never.
    """

    def listen(self, on_datagram: OnDatagram) -> None:
        """Call a function with each datagram that comes from now on."""
        ...

    def send(self, datagram: bytes) -> None:
        """Send a datagram to the group. Raises GroupUnreachable where none can be sent at all."""
        ...

    def close(self) -> None:
        """Leave the group: nothing comes any more."""
        ...
