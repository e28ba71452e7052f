"""One site's node in a simulation: its lives, and what outlives each of them.

Between two lives a site has its disk: the store of its state, its folder, its ledger files.
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
from relay.node.machine import Machine
from relay.node.node import SiteNode
from relay.node.stage_order import EndedBadly
from relay.node.start import NodeStopped
from relay.operator.gaps import read_open_gaps
from relay.state.node_state import TABLES
from simulation.memory_brokers import MemoryBrokers, Network
from simulation.os_process import OsProcess

SYNC_S = 0.004
"""What a disk takes for a sync."""


class SimulatedClock:
    """A site's clocks, in the loop's time; `ahead_ms` is how wrong the one on the wall is."""

    def __init__(self, epoch_ms: int, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self._epoch_ms = epoch_ms
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._epoch_ms + self.ahead_ms + int(self._loop.time() * 1000)


class SimulatedSite:
    """`start` a life, and end it by `stop` or `kill`; never two at a time."""

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
        """Called when its state was written, beside what else it does."""
        self.is_stopping = False
        self._book = book
        self._network = network
        self._folder = folder
        self._chance = chance
        self._store = MemoryStore(TABLES, sync_time=lambda: asyncio.sleep(SYNC_S))
        self._boots = 1
        self._brokers: MemoryBrokers | None = None
        self._process = OsProcess()
        """Of the present life."""
        self._task: asyncio.Task[None] | None = None
        self._dying: set[asyncio.Task[None]] = set()
        self._steps_left: int | None = None
        self._store.on_write = self._step
        network.brokers[site].on_step(self._step)

    @property
    def store(self) -> MemoryStore:
        """The state's, of the present life or the last."""
        return self._store

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """A new process, on what the last one left."""
        assert self._task is None, f"{self.site} runs already"
        self.lives += 1
        self._steps_left = None
        self._brokers = MemoryBrokers(self._network, self.site)
        chance = random.Random(self._chance.getrandbits(64))
        boot = f"boot {self._boots}"
        machine = Machine(
            self.clock, chance, chance.randbytes, lambda: boot, lambda folder: self._store
        )
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
        """Where its node keeps what is in files of their own."""
        return self._folder

    def bury(self) -> None:
        """The node has ended by itself, for a reason that a person saw to: it may start again."""
        assert self._task is not None
        assert self._task.done()
        self._task = self.node = None
        self._store = self._store.reopen()
        self._store.on_write = self._step

    @property
    def stopped_with(self) -> NodeStopped | EndedBadly | None:
        """Why it cannot go on, or did not end in order, if it has said so and ended."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return error if isinstance(error, NodeStopped | EndedBadly) else None

    def sees(self, book: AddressBook) -> None:
        """The mesh file says something else: its node takes that up, if it runs; not frozen."""
        assert not self.is_frozen
        self._book = book
        if self.node is None:
            return
        try:
            self._process.context.copy().run(self.node.take_up, book)
        except StoreClosed:
            if self.node is not None:
                raise
            # Its fuse has burnt down in the middle of this: so much for what it would have done.

    async def stop(self) -> None:
        """As SIGTERM does it. Raises what the node ends with, unless it had come to a gap: then it
        waits for a person.
        """
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
        """As SIGSTOP does it: whoever freezes it lets it go on, or ends it by force."""
        self._process.freeze()
        return self._process

    def given_up(self) -> None:
        """Brokers have heard nothing of it for so long that its connections end; it does not know
        of that while it is frozen.
        """
        assert self._brokers is not None
        self._brokers.give_up("heartbeats missed")

    def kill(self) -> None:
        """As SIGKILL does it: what was written is there, and nothing else happens any more."""
        self._end(self._store.crash())

    def lose_power(self) -> None:
        """The node's machine goes off, not the broker's: unsynced writes may be lost."""
        self._boots += 1
        self._end(self._store.power_cut(self._chance))

    def kill_after(self, steps: int) -> None:
        """Kill it in the middle of what it does: after so many writes of its state, publishes, and
        appends to its log that are stored and not confirmed.
        """
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
        self._process.go_on()  # a dead process's tasks have to end here
        task, self._task, self.node = self._task, None, None
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)
        task.cancel()

    async def died(self) -> None:
        """Wait until nothing moves any more of the lives that were ended by force. What a dead
        process would still have said interests nobody.
        """
        await asyncio.gather(*self._dying, return_exceptions=True)

    def raise_if_ended(self) -> None:
        """Raise what the node ended with, if it has ended by itself."""
        task = self._task
        if task is not None and task.done():
            task.result()
            raise RuntimeError(f"the node of {self.site} ended by itself")


class LedgerFiles(FileWriters):
    """Keeps what is exported, instead of a process that writes Parquet."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[str, bytes] = {}

    def rows(self) -> Iterator[LedgerRow]:
        """Of all files, in the order in which they were made."""
        for content in self._files.values():
            yield from map(decode_row, frames(BytesIO(content)))

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[FileWriter]:
        yield _Keeping(self._files)


class _Keeping(FileWriter):
    """A file is there once it is finished, whole."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files
        self._unfinished: dict[str, list[bytes]] = {}

    async def send(self, file: LedgerFile, data: bytes) -> None:
        if data != file_frame(file):
            self._unfinished.setdefault(file.path, []).append(data)

    async def finished(self, file: LedgerFile) -> None:
        self._files[file.path] = b"".join(self._unfinished.pop(file.path, []))
