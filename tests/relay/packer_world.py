"""A site in memory around a packer: its queues, its log, and processes that can be killed.

What outlives a process: the queues, the stream, and what it wrote into its state. A killed process
does nothing more, except for what already lies in a socket (`hold_next_appends` of the stream).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from federation.destinations import Addressing
from federation.mesh import AckRule, IdentityKind, IdentityRule
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry
from relay.batches.format import decode_entries, read_header
from relay.batches.fragments import FragmentAssembly
from relay.batches.incarnation import VoidTable
from relay.batches.packed_entries import PackedBatch
from relay.links.neighbour_logs import NeighbourLogs
from relay.log.memory_log import MemoryStream
from relay.log.run import LogEvents
from relay.log.writer import LogWriter
from relay.packing.memory_egress import MemoryEgressBroker, Returns
from relay.packing.packer_loop import PackerLoop
from relay.packing.packer_parts import PackerParts
from relay.packing.packer_record import MemoryPackedLedger
from relay.packing.packer_settings import PackedExchange, PackerSettings
from tests.waiting import until

LOCK = "lock"
ANONYMOUS = IdentityRule(IdentityKind.NONE)


@dataclass(slots=True)
class Logged:
    """What a reader of the whole log would make of it."""

    headers: list[BatchHeader] = field(default_factory=list)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    void: int = 0

    def bodies(self, exchange: str = "orders") -> list[bytes]:
        return [entry.body for entry in self.entries.get(exchange, [])]


class Process:
    """One node's packer and log writer."""

    def __init__(self, world: PackerWorld) -> None:
        self.world = world
        self.alive = True
        self.voids = VoidTable()
        self.neighbours = NeighbourLogs()
        self.neighbours.link("tokyo", lambda name: world.neighbour_has(name))
        self.superseded_by: list[BatchHeader] = []
        self.log = LogWriter(
            lambda: world.stream.open(),
            _Snapshot(self),
            LogEvents(lambda offset, data, reason: None, self._superseded),
            origin="paris",
            random_bytes=world.chance.randbytes,
            jitter=world.chance.random,
        )
        parts = PackerParts(
            lambda: world.broker.connect(LOCK),
            self.log,
            _Ledger(self),
            self.voids,
            world.now_ms,
            world.chance.randbytes,
            world.former_gone,
            world.boot,
            self.neighbours,
            was_answered=world.was_answered,
        )
        self.packer = PackerLoop(world.settings, parts, random.Random(world.chance.random()))
        self._tasks = [
            asyncio.ensure_future(self.log.run_forever()),
            asyncio.ensure_future(self.packer.run()),
        ]

    async def ready(self, within_s: float = 60.0) -> Process:
        decided = asyncio.ensure_future(self.packer.decided())
        await asyncio.wait(
            (decided, *self._tasks), timeout=within_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in self._tasks:
            if task.done():
                task.result()
        assert decided.done(), self.packer.status
        return self

    async def stop(self) -> None:
        """As SIGTERM does it."""
        self.packer.stop()
        await self.log_closed_after_packer()

    async def log_closed_after_packer(self) -> None:
        await self._tasks[1]
        await self.log.close()
        await self._tasks[0]
        self.alive = False

    async def finish(self) -> None:
        """Stop once everything is packed and acknowledged."""
        for exchange in self.world.published:
            await self.world.drained(exchange)
        await self.stop()

    async def has_packed(self, count: int) -> None:
        """Wait until so many messages are in the log, acknowledged or not."""
        metrics = self.packer.metrics
        await until(
            lambda: metrics.messages == count,
            lambda: f"{metrics.messages} of {count} packed",
            60,
            every_s=0.001,
        )

    async def lose_power(self) -> None:
        """The machine goes off: what was not synced is gone, and the next start is another boot."""
        await self.kill()
        self.world.ledger.power_cut()
        self.world.boot += ", cut"

    async def kill(self) -> None:
        """As SIGKILL does it: its connections end, and it writes nothing more."""
        self.alive = False
        self.world.broker.break_connections("killed")
        self.world.stream.break_connections("killed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self) -> None:
        """Cancel the tasks, as a node does whose other parts have failed. The connections are left
        to the tasks to close.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _superseded(self, header: BatchHeader) -> None:
        self.superseded_by.append(header)
        self.packer.superseded(header.name.series.incarnation.hex())


class PackerWorld:
    """Queues, log and state of one site."""

    def __init__(
        self,
        seed: int = 0,
        *,
        exchanges: Sequence[str] = ("orders",),
        identity: IdentityRule = ANONYMOUS,
        settings: Callable[[PackerSettings], PackerSettings] = lambda made: made,
        returns: Returns = Returns.FIFO,
    ) -> None:
        self.chance = random.Random(seed)
        self.stream = MemoryStream(confirm_s=0.002)
        self.broker = MemoryEgressBroker(
            ack_s=0.001, returns=returns, chance=random.Random(f"returns {seed}")
        )
        self.ledger = MemoryPackedLedger()
        self.snapshot: bytes | None = None
        self.ledger_is_shared = False
        """By two nodes at once, which a state folder's lock prevents."""
        self.boot = "boot 1"
        self.was_answered = False
        self.neighbour_has: Callable[[BatchName], bool] = lambda name: True
        self.published: dict[str, list[bytes]] = {name: [] for name in exchanges}
        self.published_by_key: dict[str, dict[bytes, list[bytes]]] = {
            name: {} for name in exchanges
        }
        self.is_narrowed = False
        """At some time sites took different keys: the log has them in order key by key."""
        self.settings = settings(
            PackerSettings(
                "paris",
                "r1",
                "relay",
                tuple(
                    PackedExchange(name, f"egress.{name}", identity=identity) for name in exchanges
                ),
            )
        )
        for name in exchanges:
            self.broker.declare(f"egress.{name}")

    async def former_gone(self) -> bool:
        return True

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(asyncio.get_running_loop().time() * 1000)

    def start(self) -> Process:
        return Process(self)

    def publish(
        self,
        *bodies: bytes,
        exchange: str = "orders",
        properties: bytes = b"\0\0",
        key: bytes = b"key",
    ) -> None:
        for body in bodies:
            self.published[exchange].append(body)
            self.published_by_key[exchange].setdefault(key, []).append(body)
            self.broker.publish(f"egress.{exchange}", key, body, properties, exchange)

    def narrow(self, wants: dict[str, tuple[str, ...]], revision: str = "r2") -> None:
        """From the next start on: what each site takes of every exchange, by its cluster ID."""
        addressing = Addressing("paris", (), (), tuple(sorted(wants.items())))
        self.is_narrowed = True
        self.settings = replace(
            self.settings,
            revision=revision,
            exchanges=tuple(replace(e, addressing=addressing) for e in self.settings.exchanges),
        )

    def ask_neighbours(self, exchange: str = "orders") -> None:
        """From the next start on, egress may forget only what a neighbour's log has."""
        exchanges = tuple(
            replace(e, acks=AckRule.REMOTE) if e.name == exchange else e
            for e in self.settings.exchanges
        )
        self.settings = replace(self.settings, exchanges=exchanges)

    async def drained(self, exchange: str = "orders", within_s: float = 120.0) -> None:
        """Until the queue is empty and everything is acknowledged."""
        queue = f"egress.{exchange}"
        await until(
            lambda: not self.broker.depth(queue),
            lambda: f"{queue} empty; it has {self.broker.depth(queue)}",
            within_s,
            every_s=0.01,
        )

    async def pack_all(self) -> Process:
        """The life of a packer that leaves nothing in the queues, and ends in good order."""
        process = await self.start().ready()
        await process.finish()
        return process

    async def killed_again_and_again(
        self, publish: Callable[[int, int], None], *, bursts: int = 20, pause_s: float = 0.006
    ) -> None:
        """Three packers, each killed amid bursts; `publish` is told of which life, and which."""
        for life in range(3):
            process = await self.start().ready()
            for burst in range(bursts):
                publish(life, burst)
                await asyncio.sleep(self.chance.uniform(0, pause_s))
            await process.kill()

    def logged(self) -> Logged:
        """Everything that counts, as a reader of the whole log finds it."""
        headers = [read_header(record.data) for record in self.stream.records]
        voids = VoidTable()
        for header in headers:
            voids.learn(header)
        seen = Logged()
        assembly = FragmentAssembly()
        for header, record in zip(headers, self.stream.records, strict=True):
            if voids.is_void(header):
                seen.void += 1
                continue
            seen.headers.append(header)
            assembly.abandon_earlier(header.name.series.flow, header.name.series.incarnation)
            entries = decode_entries(record.data)
            if header.kind is BatchKind.FRAGMENT:
                whole = assembly.add(header, entries[0])
                # Its body is where the pieces were put together, a bytearray.
                entries = [] if whole is None else [whole._replace(body=bytes(whole.body))]
            seen.entries.setdefault(header.name.series.partition, []).extend(entries)
        return seen

    def assert_nothing_lost_nor_repeated(self, exchange: str = "orders") -> Logged:
        """Each message is in the log; it is there again only if all but one copy are doubtful."""
        seen = self.logged()
        published = Counter(self.published[exchange])
        entries = seen.entries.get(exchange, [])
        copies = Counter(bytes(entry.body) for entry in entries)
        certain = Counter(bytes(entry.body) for entry in entries if not entry.doubtful)
        lost = {body: n for body, n in published.items() if copies[body] < n}
        assert not lost, f"lost: {lost}"
        repeated = {body: n for body, n in certain.items() if n > published[body]}
        assert not repeated, f"repeated and not flagged: {repeated}"
        if not self.ledger_is_shared:
            told = Counter(packed.header.name for packed in self.ledger.packed)
            counted = {h.name for h in seen.headers if h.kind is not BatchKind.MARK}
            assert counted <= told.keys(), f"not in the ledger: {counted - told.keys()}"
            assert set(told.values()) <= {1}, f"twice in the ledger: {told.most_common(3)}"
        return seen

    def assert_exactly_once_in_order(self, exchange: str = "orders") -> Logged:
        seen = self.assert_nothing_lost_nor_repeated(exchange)
        self.assert_in_order(seen.entries.get(exchange, []), exchange)
        assert not any(entry.doubtful for entry in seen.entries.get(exchange, []))
        return seen

    def assert_in_order(self, entries: Sequence[Entry], exchange: str = "orders") -> None:
        """These are all that was published, once, in the order in which it was."""
        if not self.is_narrowed:
            assert [entry.body for entry in entries] == self.published[exchange]
        by_key: dict[bytes, list[bytes]] = {}
        for entry in entries:
            by_key.setdefault(entry.routing_key, []).append(entry.body)
        assert by_key == self.published_by_key[exchange]

    def assert_numbers_are_dense(self) -> None:
        """Of what counts: per series, and over each incarnation, marks included."""
        series: dict[object, list[int]] = {}
        whole: dict[bytes, list[int]] = {}
        for header in self.logged().headers:
            series.setdefault(header.name.series, []).append(header.name.sequence)
            whole.setdefault(header.name.series.incarnation, []).append(header.incarnation_sequence)
        for numbers in (*series.values(), *whole.values()):
            assert numbers == list(range(len(numbers)))


def numbered(count: int, start: int = 0, size: int = 0) -> list[bytes]:
    """Bodies that tell their number, at least `size` bytes each."""
    return [(b"message %d" % n).ljust(size, b".") for n in range(start, start + count)]


def with_settings(**changes: object) -> Callable[[PackerSettings], PackerSettings]:
    return lambda made: replace(made, **changes)  # type: ignore[arg-type]


class _Ledger:
    def __init__(self, process: Process) -> None:
        self._process = process

    def load(self) -> bytes | None:
        return self._process.world.ledger.load()

    def record(self, packed: Sequence[PackedBatch], record: bytes) -> None:
        if self._process.alive:
            self._process.world.ledger.record(packed, record)

    async def synced(self) -> None:
        if self._process.alive:
            await self._process.world.ledger.synced()


class _Snapshot:
    def __init__(self, process: Process) -> None:
        self._process = process

    def load(self) -> bytes | None:
        return self._process.world.snapshot

    def save(self, snapshot: bytes) -> None:
        if self._process.alive:
            self._process.world.snapshot = snapshot

    async def synced(self) -> None:
        await asyncio.sleep(0)
