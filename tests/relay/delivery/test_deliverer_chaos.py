"""The deliverer over a log and a broker that fail by chance, seeded: once, in order, or flagged.

Two neighbours offer their batches until the log says that it has them. The node is killed or ends;
its log loses its tail, gets a stranger's batch, its connections break, with appends stored and not
confirmed; the site's broker drops the deliverer's connection with messages under way, or has a
full queue for a while.

Meanwhile the node writes down up to where it has settled what: at no time more than is true.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from federation.mesh import Exchange, OrderRule
from relay.batches.batch import BatchHeader
from relay.batches.format import read_header
from relay.bulk_amqp import content_header
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.ledger.rows import Event, Stage, decode_row
from relay.log.run import LogSettings
from relay.log.site_log import SiteLogError
from relay.node.housekeeping import ThroughRows
from relay.state.flow_state import ANNOUNCED_AT_MOST
from relay.state.node_state import NodeState
from simulation.invariants import Arrived, check_site
from tests.relay.deliverer_world import FAST, Life, World, entry, mesh
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

ORIGINS = ("paris", "sydney")
EXCHANGES = ("orders", "prices")
PATIENT = replace(FAST, max_attempts=10**6, backoff_first_s=0.05, backoff_most_s=1.0)
STRANGER = "mallory"
FAULTS = ["kill", "kill", "end", "tail", "tail", "break", "unconfirmed", "stranger"]
FAULTS += ["exchange", "full"]


class Trial:
    def __init__(self, seed: int, order: OrderRule = OrderRule.STRICT) -> None:
        self.random = random.Random(f"deliverer {seed}")
        self.order = order
        self.world = World(
            mesh(*(Exchange(name, retry=PATIENT, order=order) for name in EXCHANGES)),
            chance=random.Random(f"log {seed}"),
        )
        self.world.stream.confirm_s = 0.001
        self.world.log_settings = LogSettings(
            hot_bytes=self.random.choice([2_000, 100_000]),
            check_every_s=self.random.choice([0.05, 1.0]),
        )
        self.world.make_exchange = self.make_exchange
        self.published: dict[str, dict[str, dict[int, bytes]]] = {
            exchange: {origin: {} for origin in (*ORIGINS, STRANGER)} for exchange in EXCHANGES
        }
        self.offers = {origin: self.make_batches(origin) for origin in ORIGINS}
        self.of_stranger: list[tuple[BatchHeader, bytes]] = []
        self.doubts = 0
        self.through_rows = 0
        self.rows_looked_at = 0

    def make_exchange(self, broker: MemoryBroker) -> MemoryExchange:
        def before_answer(_: str) -> asyncio.Future[None]:
            loop = asyncio.get_running_loop()
            answer = loop.create_future()
            delay = self.random.random() * self.random.choice([0.001, 0.05])
            loop.call_later(delay, lambda: answer.done() or answer.set_result(None))
            return answer

        return MemoryExchange(broker, before_answer)

    def make_batches(self, origin: str) -> list[tuple[BatchHeader, bytes]]:
        made, number = [], 0
        for _ in range(120):
            exchange = self.random.choice(EXCHANGES)
            entries = []
            for _ in range(self.random.choice([1, 3, 40])):
                entries.append(entry(f"{origin} {number}"))
                self.published[exchange][origin][number] = entries[-1].body
                number += 1
            incarnation = f"incarn_{origin[0]}".encode()
            made.append(
                self.world.batch(entries, origin=origin, exchange=exchange, incarnation=incarnation)
            )
        return made

    async def offer(self, life: Life, origin: str) -> None:
        """What a link does: all that the log lacks, in order, a window at a time."""
        batches = self.offers[origin]
        while True:
            made = int(asyncio.get_running_loop().time() * 4)
            try:
                await life.writer.running()
                lacking = [b for b in batches[:made] if b[0].name not in life.writer.logged]
                for one in lacking[: self.random.randint(1, 20)]:
                    await life.writer.append(*one)
            except SiteLogError:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.random.random() * 0.2)

    async def strike(self, life: Life) -> str:
        stream = self.world.stream
        kind = self.random.choice(FAULTS)
        if kind == "tail":
            stream.lose_tail(self.random.choice([1, 5, 40]))
        elif kind == "break":
            stream.break_connections()
        elif kind == "unconfirmed":
            stream.break_after_storing()
        elif kind == "stranger":
            # Again and again, should the log lose it, as a neighbour would offer it: one whose
            # copy has all of the stranger's in order. So an earlier one that the log has lost and
            # nobody has offered again yet comes before it, or the log would be out of order.
            exchange, number = self.random.choice(EXCHANGES), len(self.of_stranger)
            one = entry(f"{STRANGER} {number}")
            self.published[exchange][STRANGER][number] = one.body
            made = self.world.batch(
                [one], origin=STRANGER, exchange=exchange, incarnation=b"incarn_m"
            )
            self.offers[ORIGINS[0]].insert(number, made)
            self.of_stranger.append(made)
            has = {read_header(record.data).name for record in stream.records}
            stream.append_alien(*(b for h, b in self.of_stranger if h.name not in has))
        elif kind == "exchange":
            self.world.exchanges[-1].break_off("test")
            self.doubts += 1
        elif kind == "full":
            queue = f"{self.random.choice(EXCHANGES)}.queue"
            self.doubts += 1
            if self.order is OrderRule.BEST_EFFORT and self.random.random() < 0.7:
                self.world.broker.beside_full.add(queue)
                asyncio.get_running_loop().call_later(
                    self.random.random() * 8, self.world.broker.beside_full.discard, queue
                )
                return kind
            self.world.broker.capacity[queue] = len(self.world.broker.messages[queue])
            asyncio.get_running_loop().call_later(
                self.random.random() * 5, self.world.broker.capacity.pop, queue, None
            )
        return kind

    async def write_through(self, life: Life, chance: random.Random) -> None:
        """What housekeeping does, far more often."""
        rows = ThroughRows(
            "tokyo", life.state, life.writer, life.context.settlement, lambda: None, lambda: 0
        )
        while True:
            await asyncio.sleep(chance.random() * chance.choice([0.1, 2]))
            await rows.write(chance.choice([0.01, 2]))
            self.check_through(life)

    def check_through(self, life: Life) -> None:
        """What each new row speaks of is settled, and its rows stand before it."""
        state = NodeState(self.world.store)
        settled, checked = state.load().settled, life.writer.checked
        rows = state.rows(Stage.DELIVERED, self.rows_looked_at)
        new = [(number, decode_row(data)) for number, data in rows]
        for number, row in new:
            self.rows_looked_at = number + 1
            if row.event is not Event.THROUGH:
                continue
            self.through_rows += 1
            assert checked is not None
            for record in self.world.stream.records:
                header = read_header(record.data)
                series = header.name.series
                if (
                    record.offset <= checked.offset
                    and series.flow == (row.origin, row.exchange, row.lane)
                    and series.incarnation == row.incarnation
                    and header.incarnation_sequence <= row.incarnation_sequence
                ):
                    assert header.name in settled, f"row {number}: {row}; {header.name}"

    async def run(self) -> None:
        faults = 25
        while True:
            life = Life(self.world)
            await life.start()
            offering = [asyncio.create_task(self.offer(life, origin)) for origin in ORIGINS]
            chance = random.Random(f"through {faults}")
            writing = asyncio.create_task(self.write_through(life, chance))
            kind = ""
            while faults and kind not in ("kill", "end"):
                faults -= 1
                await asyncio.sleep(self.random.random() * self.random.choice([0.1, 1, 4]))
                life._raise_if_ended()
                kind = await self.strike(life)
            if not faults:
                await self.until_delivered(life)
            if writing.done():
                writing.result()
            for task in (*offering, writing):
                task.cancel()
            await asyncio.gather(*offering, writing, return_exceptions=True)
            if kind == "kill" and faults:
                self.doubts += 1
                await life.kill()
                if self.random.random() < 0.4:
                    self.world.stream.lose_tail(self.random.choice([1, 10]))
            else:
                await life.stop()
            if not faults:
                return

    async def until_delivered(self, life: Life) -> None:
        """All is there, and after that nothing comes again."""
        wanted = {
            name: {body for bodies in origins.values() for body in bodies.values()}
            for name, origins in self.published.items()
        }

        def missing() -> dict[str, list[bytes]]:
            return {
                name: sorted(bodies - {body.encode() for body in self.world.delivered(name)})[:5]
                for name, bodies in wanted.items()
            }

        def is_there() -> bool:
            life._raise_if_ended()
            return not any(missing().values())

        await until(is_there, lambda: f"{missing()}; {life.deliverer.standing}", 600, every_s=0.5)
        await let_pass(10)

    def check(self) -> None:
        for exchange in EXCHANGES:
            queue = self.world.broker.messages[f"{exchange}.queue"]
            arrived = []
            for _, message in queue:
                origin, number = message.body.decode().removeprefix("body ").split()
                flag = content_header.header(message.properties, b"x-mesh-redelivered")
                arrived.append(
                    Arrived(origin, int(number), flag is not None, (origin,), message.body)
                )
            check_site(
                "tokyo",
                arrived,
                self.published[exchange],
                ordered=self.order is OrderRule.STRICT,
                most_flags=self.doubts * 3 * ANNOUNCED_AT_MOST,
            )


def seeds(count: int) -> list[object]:
    """A few for every run, all of them for the long one."""
    return [
        seed if seed < 6 else pytest.param(seed, marks=pytest.mark.long) for seed in range(count)
    ]


@pytest.mark.parametrize("seed", seeds(100))
def test_every_message_is_delivered_once_in_order_or_flagged_whatever_fails(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        subject = Trial(seed)
        await subject.run()
        subject.check()
        assert subject.through_rows > 10

    trial()


@pytest.mark.parametrize("seed", seeds(100))
def test_with_best_effort_all_is_there_once_or_flagged_and_waits_for_no_refusal(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        subject = Trial(seed, OrderRule.BEST_EFFORT)
        await subject.run()
        subject.check()
        assert not NodeState(subject.world.store).load().deferred

    trial()
