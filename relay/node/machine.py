"""Machine that a node runs on: clocks, chance, memory, a disk for its state."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dedup.rocksdb_store import RocksdbStore
from dedup.store import Store
from federation.mesh import MulticastGroup
from relay.content.contents import Contents
from relay.group.carrier import GroupCarrier
from relay.group.udp_carrier import UdpCarrier
from relay.links.transport.connection import Clock
from relay.state.node_state import POINT_TABLES, TABLES


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class GivingRefused(Exception):
    """State that cannot go to the named node now; nothing has changed."""


@dataclass(frozen=True, slots=True)
class HeldState:
    """State that is a node's to write, for one run of its stages."""

    store: Store
    hold: Callable[[Callable[[], None], Callable[[], int | None]], Coroutine[Any, Any, object]]
    """Work without an end, which raises StoreError once the state is another node's. The work calls
    its first argument once another node is to have the state: the run is then to end in order. The
    second counts the messages that were handled, and returns None before the stages run.
    """
    report: Callable[[], dict[str, Any]] | None = None
    """Figures of a state that the site's nodes share; None: no other node may go on with it."""
    give_to: Callable[[str], Awaitable[None]] | None = None
    """Order: another node, named, is to have the state. Raises GivingRefused."""


class OpenState(Protocol):
    """Way to the state in a folder, which no other process has."""

    def __call__(
        self, folder: Path, report: Callable[[str], None], /
    ) -> AbstractAsyncContextManager[HeldState]:
        """Wait until the state is this node's, and give the state up in the end. `report` is called
        with what is waited for. Raises StoreError.
        """
        ...


def join_by_udp(group: MulticastGroup, interface: str) -> GroupCarrier:
    """Join a multicast group at an interface, or where the routes lead; see `UdpCarrier`. Raises
    GroupUnreachable.
    """
    return UdpCarrier(group.address, group.port, interface=interface, ttl=group.ttl)


@dataclass(frozen=True, slots=True)
class Machine:
    """Means that a node takes from its machine, so that a simulation can decide all of it."""

    clock: Clock
    random: random.Random
    """Random numbers for jitter."""
    random_bytes: Callable[[int], bytes]
    """Random bytes for what must never come twice, on any machine."""
    boot_id: Callable[[], str]
    """ID of the boot, another one after a power cut: unsynced writes may be gone."""
    open_state: OpenState
    shares_power: bool = True
    """True if the site's log may lose its end when `boot_id` changes: as a broker on this machine
    does, and one that another node of the site goes on with does not.
    """
    copy_report: Callable[[], dict[str, Any] | None] | None = None
    """Figures of this node's copy of a state that the site's nodes share, while the node stands by;
    None: no other node may go on with the state.
    """
    contents: Contents | None = None
    """Contents of the slot's log in the store that the site's nodes share; None: there is none."""
    join_group: Callable[[MulticastGroup, str], GroupCarrier] = join_by_udp
    """Way into a multicast group, given the address of an interface. Raises GroupUnreachable."""


def open_store(folder: Path, *more: str) -> Store:
    """Open a node's store on the disk, with more tables than its state's. Raises StoreError."""
    return RocksdbStore(folder, (*TABLES, *more), point_tables=POINT_TABLES)


def unshared(open_store: Callable[[Path], Store]) -> OpenState:
    """Return the way to a state that is this node's alone, as `open_store` opens it."""

    @asynccontextmanager
    async def open_state(folder: Path, _: Callable[[str], None]) -> AsyncIterator[HeldState]:
        store = open_store(folder)
        try:
            yield HeldState(store, lambda give_up, handled: asyncio.Event().wait())
        finally:
            store.close()

    return open_state


def this_machine() -> Machine:
    """Return the real machine."""
    return Machine(SystemClock(), random.Random(), os.urandom, boot_id, unshared(open_store))


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Kernel's ID of this boot; a new random ID if there is none, so that no unsynced write is
    trusted.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())


BIG_BYTES = 512 * 1024
"""Size above what the hot path takes for small messages: a block above it costs 50 us of page
faults.
"""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_back_big_blocks() -> bool:
    """Have glibc map blocks from BIG_BYTES on one by one, so that freed ones go back to the system.
    Return False with another C library.

    By default glibc raises that limit to the biggest block ever freed: after one message of 15 MiB,
    blocks of megabytes come to lie between small ones and stay with the process, a third of a
    node's memory under such messages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, BIG_BYTES) and mallopt(_M_TRIM_THRESHOLD, 2 * BIG_BYTES))
