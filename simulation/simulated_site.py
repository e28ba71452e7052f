"""One site's node in a simulation: its lives, and the disk that outlives them.

The disk has the store of the node's state, its folder and its ledger files.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from io import BytesIO
from pathlib import Path

from dedup.memory_store import MemoryStore
from dedup.store import StoreClosed
from federation.brokers.addresses import AddressBook
from relay.ledger.file import LedgerFile, file_frame, frames
from relay.ledger.file_writer import FileWriter, FileWriters
from relay.ledger.rows import LedgerRow, decode_row
from relay.node.machine import Machine, unshared
from relay.node.node import SiteNode
from relay.node.stage_order import EndedBadly
from relay.node.start import NodeStopped
from relay.operator.gaps import read_open_gaps
from relay.state.node_state import TABLES
from simulation.memory_brokers import MemoryBrokers, Network
from simulation.os_process import OsProcess

SYNC_S = 0.004
"""Time of a sync to disk."""


class SimulatedClock:
    """Clocks of a site in the loop's time; `ahead_ms` is the error of the wall clock."""

    def __init__(self, epoch_ms: int, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self._epoch_ms = epoch_ms
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._epoch_ms + self.ahead_ms + int(self._loop.time() * 1000)


class SimulatedSite:
    """Site with at most one live node: `start` begins a life, `stop` or `kill` ends it."""

    def __init__(
        self,
        site: str,
        book: AddressBook,
        network: Network,
        folder: Path,
        clock: SimulatedClock,
        chance: random.Random,
    ) -> None:
        self.site = site
        self.clock = clock
        self.ledger = LedgerFiles()
        self.node: SiteNode | None = None
        self.lives = 0
        self.on_written: Callable[[], None] = lambda: None
        """Callback after each write of the node's state and each step of its broker."""
        self.is_stopping = False
        self._book = book
        self._network = network
        self._folder = folder
        self._chance = chance
        self._store = MemoryStore(TABLES, sync_time=lambda: asyncio.sleep(SYNC_S))
        self._boots = 1
        self._brokers: MemoryBrokers | None = None
        self._process = OsProcess()
        """Process of the present life."""
        self._task: asyncio.Task[None] | None = None
        self._dying: set[asyncio.Task[None]] = set()
        self._steps_left: int | None = None
        self._store.on_write = self._step
        network.brokers[site].on_step(self._step)

    @property
    def store(self) -> MemoryStore:
        """Store of the node's state, of the present or the latest life."""
        return self._store

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Start a new process on the disk of the previous one."""
        assert self._task is None, f"{self.site} runs already"
        self.lives += 1
        self._steps_left = None
        self._brokers = MemoryBrokers(self._network, self.site)
        chance = random.Random(self._chance.getrandbits(64))
        boot = f"boot {self._boots}"
        state = unshared(lambda folder: self._store)
        machine = Machine(self.clock, chance, chance.randbytes, lambda: boot, state)
        self.node = SiteNode(
            self.site,
            self._book,
            self._folder,
            ledger_writers=self.ledger,
            brokers=self._brokers,
            machine=machine,
        )
        self._process = OsProcess()
        self._task = asyncio.get_running_loop().create_task(
            self.node.run(),
            name=f"{self.site}, life {self.lives}",
            context=self._process.context,
        )

    @property
    def folder(self) -> Path:
        """Folder of the node's own files."""
        return self._folder

    def bury(self) -> None:
        """Clean up after a node that ended by itself, so that it may start again."""
        assert self._task is not None
        assert self._task.done()
        self._task = self.node = None
        self._store = self._store.reopen()
        self._store.on_write = self._step

    @property
    def stopped_with(self) -> NodeStopped | EndedBadly | None:
        """Error of a node that stopped for a person or ended badly, or None."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return error if isinstance(error, NodeStopped | EndedBadly) else None

    def take_up(self, book: AddressBook) -> None:
        """Change the mesh file: the node takes it up, if running. The node must not be frozen."""
        assert not self.is_frozen
        self._book = book
        if self.node is None:
            return
        try:
            self._process.context.copy().run(self.node.take_up, book)
        except StoreClosed:
            if self.node is not None:
                raise
            # The node was killed in the middle of this call.

    async def stop(self) -> None:
        """Stop the node as SIGTERM does. Raise the node's error, unless it stopped at a gap."""
        assert self.node is not None
        assert self._task is not None
        task, self.is_stopping = self._task, True
        self.node.stop()
        try:
            await asyncio.wait({task})
        finally:
            self.is_stopping = False
        if self._task is not task:
            return  # killed meanwhile
        if self.stopped_with is not None and read_open_gaps(self.folder):
            return
        task.result()
        self._task = self.node = None
        self._store = self._store.reopen()
        self._store.on_write = self._step

    @property
    def is_frozen(self) -> bool:
        return self._process.is_frozen

    def freeze(self) -> OsProcess:
        """Freeze the process as SIGSTOP does; the caller continues or kills it."""
        self._process.freeze()
        return self._process

    def lose_connections(self) -> None:
        """End the node's connections at its brokers; a frozen node does not notice."""
        assert self._brokers is not None
        self._brokers.give_up("heartbeats missed")

    def kill(self) -> None:
        """Kill the process as SIGKILL does: its writes stay, and nothing else happens any more."""
        self._end(self._store.crash())

    def lose_power(self) -> None:
        """Cut the power of the node's machine, not of the broker's: unsynced writes may be lost."""
        self._boots += 1
        self._end(self._store.power_cut(self._chance))

    def kill_after(self, steps: int) -> None:
        """Kill the node after so many steps: state writes, publishes, unconfirmed appends."""
        self._steps_left = steps

    def _step(self) -> None:
        if self.node is not None:
            self.on_written()
        if self._steps_left is None or not self.is_running:
            return
        self._steps_left -= 1
        if self._steps_left < 0:
            self.kill()

    def _end(self, left: MemoryStore) -> None:
        assert self._brokers is not None
        assert self._task is not None
        self._steps_left = None
        self._store = left
        self._store.on_write = self._step
        self._brokers.kill()
        self._process.is_dead = True
        self._process.go_on()  # the tasks of a dead process have to end too
        task, self._task, self.node = self._task, None, None
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)
        task.cancel()

    async def died(self) -> None:
        """Wait for the end of all killed lives; their errors are ignored."""
        await asyncio.gather(*self._dying, return_exceptions=True)

    def raise_if_ended(self) -> None:
        """Raise the error of a node that has ended by itself."""
        task = self._task
        if task is not None and task.done():
            task.result()
            raise RuntimeError(f"the node of {self.site} ended by itself")


class LedgerFiles(FileWriters):
    """Ledger files in memory, by path, instead of Parquet from a process."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}

    def rows(self) -> Iterator[LedgerRow]:
        """Yield the rows of all files, in the order of their making."""
        for content in self._files.values():
            yield from map(decode_row, frames(BytesIO(content)))

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        yield _Keeping(self._files)


class _Keeping(FileWriter):
    """Writer whose file exists, whole, once finished."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._unfinished: dict[str, list[bytes]] = {}

    async def send(self, file: LedgerFile, data: bytes) -> None:
        if data != file_frame(file):
            self._unfinished.setdefault(file.path, []).append(data)

    async def finished(self, file: LedgerFile) -> None:
        self._files[file.path] = b"".join(self._unfinished.pop(file.path, []))
