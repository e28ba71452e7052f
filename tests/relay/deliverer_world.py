"""A deliverer over memory twins: a log that tests append to, a broker that they look into."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dedup.barrier import Barrier
from dedup.identity import text_identity
from dedup.memory_store import MemoryStore
from federation.mesh import Exchange, ForwardingRule, Mesh, RetryRule, Site
from relay.batches.batch import (
    EVERY_SITE,
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Fragment,
    Predecessor,
    Series,
)
from relay.batches.format import seal
from relay.batches.incarnation import VoidTable
from relay.bulk_amqp import content_header
from relay.delivery.context import (
    POSITION,
    DeliveryContext,
    DeliveryCounters,
    DeliverySettings,
)
from relay.delivery.deliverer import Deliverer, DeliveryConnection
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.delivery.settlement import Settlement
from relay.ledger.rows import LedgerRow, Stage, decode_row
from relay.log.memory_log import MemoryStream
from relay.log.run import LogEvents, LogSettings
from relay.log.writer import LogWriter
from relay.node.bindings import StateLogMemory
from relay.state.flow_state import ANNOUNCED_AT_MOST
from relay.state.node_state import STATE, TABLES, NodeState
from relay.tracing.batch_trace import BatchTrace
from relay.waiters import Signal
from tests.waiting import until

NOW_MS = 1_800_000_000_000
WINDOW_MS = 72 * 3_600_000
FAST = RetryRule(max_attempts=3, backoff_first_s=0.001, backoff_most_s=0.002)


def mesh(*exchanges: Exchange) -> Mesh:
    sites = {name: Site(name, name) for name in ("tokyo", "paris", "sydney")}
    known = exchanges or (Exchange("orders", retry=FAST), Exchange("prices", retry=FAST))
    return Mesh(
        "acme",
        "rev1",
        WINDOW_MS / 1000,
        ForwardingRule.RING,
        sites,
        {exchange.name: exchange for exchange in known},
        (),
        {name: name for name in sites},
    )


def entry(number: int | str, body: bytes = b"", **changes: object) -> Entry:
    made = Entry(
        text_identity(str(number).encode()) or b"",
        b"key",
        content_header.NONE_PRESENT,
        body or f"body {number}".encode(),
        NOW_MS - 1000,
    )
    return made._replace(**changes)  # type: ignore[arg-type]


@dataclass
class World:
    """What outlives the deliverer; `running()` gives it one life."""

    mesh: Mesh = field(default_factory=mesh)
    stream: MemoryStream = field(default_factory=MemoryStream)
    broker: MemoryBroker = field(default_factory=MemoryBroker)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(TABLES))
    now_ms: int = NOW_MS
    log_settings: LogSettings = field(default_factory=LogSettings)
    make_exchange: Callable[[MemoryBroker], MemoryExchange] = MemoryExchange
    announced_at_most: int = ANNOUNCED_AT_MOST
    sequences: dict[Series, int] = field(default_factory=dict)
    whole: dict[bytes, int] = field(default_factory=dict)
    exchanges: list[MemoryExchange] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    """Of the log's writer: a trial by chance hands in its own."""
    trace: BatchTrace | None = None

    def __post_init__(self) -> None:
        for exchange in self.mesh.exchanges.values():
            self.broker.declare(exchange.delivers_to, f"{exchange.name}.queue")
        for queue in ("dead", "quarantine"):
            self.broker.declare(queue, queue)

    def batch(
        self,
        entries: Sequence[Entry],
        *,
        origin: str = "paris",
        exchange: str = "orders",
        incarnation: bytes = b"incarn_1",
        predecessors: tuple[Predecessor, ...] = (),
        to: tuple[str, ...] = EVERY_SITE,
        **changes: object,
    ) -> tuple[BatchHeader, bytes]:
        series = Series(origin, incarnation, exchange, 0, to)
        sequence = self.sequences[series] = self.sequences.get(series, -1) + 1
        whole = self.whole[incarnation] = self.whole.get(incarnation, -1) + 1
        times = [e.published_ms for e in entries] or [NOW_MS]
        header = BatchHeader(
            BatchKind.MESSAGES,
            BatchName(series, sequence),
            whole,
            predecessors,
            "rev1",
            0,
            0,
            0,
            0,
            min(times),
            max(times),
            (origin,) if origin == "tokyo" else (origin, "tokyo"),
        )
        return seal(replace(header, **changes), entries)  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Life]:
        life = Life(self)
        await life.start()
        try:
            yield life
        finally:
            await life.stop()

    def delivered(self, exchange: str = "orders") -> list[str]:
        return [m.body.decode() for _, m in self.broker.messages[f"{exchange}.queue"]]

    def flags(self, exchange: str = "orders") -> list[bool]:
        return [
            content_header.header(m.properties, b"x-mesh-redelivered") is not None
            for _, m in self.broker.messages[f"{exchange}.queue"]
        ]

    def rows(self) -> list[LedgerRow]:
        return [decode_row(data) for _, data in NodeState(self.store).rows(Stage.DELIVERED)]


class Life:
    """One run of the deliverer, from state to state."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counters = DeliveryCounters()
        self.stopping = Signal()

    async def start(self, *, deliver: bool = True) -> None:
        world = self.world
        self.state = NodeState(world.store)
        loaded = self.state.load()
        self.writer = LogWriter(
            world.stream.open,
            StateLogMemory(self.state),
            LogEvents(lambda *_: None, lambda _: None),
            origin="tokyo",
            settings=world.log_settings,
            random_bytes=world.chance.randbytes,
            jitter=world.chance.random,
        )
        self._logging = asyncio.create_task(self.writer.run_forever())
        await self.writer.running()

        async def connect() -> MemoryExchange:
            made = world.make_exchange(world.broker)
            world.exchanges.append(made)
            return made

        connection = DeliveryConnection(connect, self.stopping, lambda: 0.0, settle_s=0.0)
        position = loaded.positions.get(POSITION)
        self.context = DeliveryContext(
            settings=DeliverySettings(
                *("tokyo", "tokyo", "relay", "dead", "quarantine", 1.0, 0.01),
                announced_at_most=world.announced_at_most,
            ),
            mesh=world.mesh,
            log=self.writer,
            state=self.state,
            settled=loaded.settled,
            barrier=Barrier(world.store, WINDOW_MS, meta_table=STATE),
            voids=VoidTable(),
            settlement=Settlement(position),
            counters=self.counters,
            stopping=self.stopping,
            now_ms=lambda: world.now_ms,
            random=lambda: 0.0,
            exchange=connection.exchange,
            open_exchange=connection.open_exchange,
            window_ms=WINDOW_MS,
            position=position,
            flows=dict(loaded.flows),
            deferred={flow: dict(batches) for flow, batches in loaded.deferred.items()},
            trace=world.trace,
        )
        self.deliverer = Deliverer(self.context, connection)
        connecting = self.deliverer.keep_connected() if deliver else asyncio.sleep(0)
        self._connecting = asyncio.create_task(connecting)
        self.task = asyncio.create_task(self.deliverer.run() if deliver else asyncio.sleep(0))

    async def log(self, *batches: tuple[BatchHeader, bytes]) -> BatchName:
        """Append these; the last one's name."""
        for batch in batches:
            await self.writer.append(*batch)
        return batches[-1][0].name

    async def settled(self, name: BatchName) -> None:
        """Wait until everything in the log up to the batch of this name is settled."""

        def reached() -> bool:
            position = self.context.settlement.position(lambda place: place)
            return position is not None and position.name == name

        await self.until(reached)

    async def until(self, condition: Callable[[], bool]) -> None:
        def is_met() -> bool:
            met = condition()
            if not met:
                self._raise_if_ended()
            return met

        await until(is_met, self._how_far, 10, every_s=0.001)

    def _how_far(self) -> str:
        delivered = {name: len(self.world.delivered(name)) for name in self.world.mesh.exchanges}
        return f"delivered {delivered}, {self.counters}, standing {self.deliverer.standing}"

    def _raise_if_ended(self) -> None:
        if self.task.done():
            self.task.result()
            raise AssertionError("the deliverer ended")

    async def kill(self) -> None:
        """As SIGKILL: nothing is finished. What the store has been given survives."""
        tasks = self.task, self._connecting, self._logging
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.world.store = self.world.store.crash()

    async def stop(self) -> None:
        if self.task.cancelled():
            return  # killed
        self.stopping.set()
        await asyncio.gather(self.task, return_exceptions=True)
        self._connecting.cancel()
        await asyncio.gather(self._connecting, return_exceptions=True)
        await self.writer.close()
        await asyncio.gather(self._logging, return_exceptions=True)


def in_pieces(world: World, whole: Entry, **changes: Any) -> list[tuple[BatchHeader, bytes]]:
    """A message's three pieces; `changes` as `World.batch` takes them."""
    size = -(-len(whole.body) // 3)
    return [
        world.batch(
            [whole._replace(body=whole.body[size * n : size * (n + 1)])],
            kind=BatchKind.FRAGMENT,
            fragment=Fragment(n, 3),
            **changes,
        )
        for n in range(3)
    ]
