"""Seam to the ensemble through which the nodes of a site find each other.

What is kept there are small entries under paths, each by one node's session, and gone with it. They
say who *should* run a slot; who may is decided by the journal and by the broker alone. So an entry
may be late, missing or another node's without harm, all entries may vanish at once, and while the
ensemble is away nothing moves and nothing stops.

Twins: `memory_coordination.MemoryCoordination` and `zookeeper.ZookeeperCoordination`; one contract
suite runs over both.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class CoordinationAway(Exception):
    """The ensemble did not answer in time: the outcome is unknown, and the call may be repeated."""


class CoordinationRefused(Exception):
    """The ensemble understood a request and will never carry it out."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the ensemble refuses what a node asks: {reason}; check path and rights")


class CoordinationEntry(NamedTuple):
    """Entry as it was read."""

    data: bytes
    is_own: bool
    """True for an entry of the present session of the node that reads."""


class Coordination(Protocol):
    """One node's connection. Every method may raise CoordinationAway and CoordinationRefused."""

    @property
    def steady_since(self) -> float | None:
        """Time, by the event loop's clock, since which the session is connected without a break;
        None while it is not.
        """
        ...

    async def add(self, path: str, data: bytes) -> bool:
        """Add an entry of the present session. Return False if there is an entry, whosever."""
        ...

    async def read(self, path: str) -> CoordinationEntry | None:
        """Read an entry, as a majority has it or had it a moment ago."""
        ...

    async def remove(self, path: str) -> None:
        """Remove an entry, whosever; nothing happens if there is none."""
        ...

    async def names(self, folder: str) -> list[str]:
        """Return the last parts of the paths of a folder's entries, sorted."""
        ...

    async def changed(self, path: str, seen: CoordinationEntry | None) -> None:
        """Wait until the entry may be another than `seen`, or the connection has changed."""
        ...

    async def close(self) -> None:
        """End the session, with all its entries. Raises nothing."""
        ...
