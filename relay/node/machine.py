"""What a node has of the machine it runs on: clocks, chance, a disk for its state."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dedup.rocksdb_store import RocksdbStore
from dedup.store import Store
from relay.links.transport.connection import Clock
from relay.node.boot import boot_id
from relay.state.node_state import POINT_TABLES, TABLES


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Machine:
    """All of it comes in here, so that a simulation can decide it."""

    clock: Clock
    random: random.Random
    """For jitter."""
    random_bytes: Callable[[int], bytes]
    """For what must never come twice, on any machine."""
    boot_id: Callable[[], str]
    """Another one after a power cut: unsynced writes may be gone."""
    open_store: Callable[[Path], Store]
    """The state in this folder; nobody else has it open. Raises StoreError."""


def open_state(folder: Path) -> Store:
    """A node's store, on the disk. Raises StoreError."""
    return RocksdbStore(folder, TABLES, point_tables=POINT_TABLES)


def this_machine() -> Machine:
    """The real one."""
    return Machine(SystemClock(), random.Random(), os.urandom, boot_id, open_state)
