"""Reports of a batch by log, link and deliverer while traces are on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.opened_batch import OpenedBatch
from relay.log.site_log import LogClosed
from relay.tracing.batch_trace import LinkTrace
from tests.log_world import LogWorld, append
from tests.relay.deliverer_world import NOW_MS, World, entry
from tests.relay.link_logs import make_batch
from tests.relay.link_world import LinkWorld
from tests.virtual_time import in_virtual_time
from tests.waiting import until


@dataclass
class Reports:
    """Reports of stages, in order: what, number of the batch, and more."""

    calls: list[tuple[object, ...]] = field(default_factory=list)

    def logging(self, header: BatchHeader, data: bytes) -> None:
        self.calls.append(("logging", header.name.sequence))

    def logged(self, header: BatchHeader) -> None:
        self.calls.append(("logged", header.name.sequence))

    def sending(self, header: BatchHeader, data: bytes, peer: str) -> None:
        self.calls.append(("sending", header.name.sequence, peer))

    def sent(self, headers: Sequence[BatchHeader], peer: str) -> None:
        self.calls += [("sent", header.name.sequence, peer) for header in headers]

    def delivered(
        self, header: BatchHeader, messages: OpenedBatch, since_ms: int, count: int
    ) -> None:
        self.calls.append(("delivered", header.name.sequence, len(messages), since_ms, count))


@in_virtual_time
async def test_the_log_reports_each_batch_once_and_none_that_it_had_or_lost() -> None:
    reports = Reports()
    world = LogWorld(trace=reports)
    async with world.writer() as writer:
        await append(writer, 0, 1, 1)
        await append(writer, 0)
        assert reports.calls == [("logging", 0), ("logging", 1), ("logged", 0), ("logged", 1)]
        world.stream.hold_next_appends()
        lost = asyncio.gather(append(writer, 2), return_exceptions=True)
        await until(lambda: reports.calls[4:], "the batch is on its way", 10)
        world.stream.break_connections()
        (failure,) = await lost
        assert isinstance(failure, LogClosed)
        assert reports.calls[4:] == [("logging", 2)]


def test_a_link_reports_each_batch_as_it_goes_and_as_the_neighbour_has_it() -> None:
    reports = Reports()
    world = LinkWorld()
    world.trace = LinkTrace(reports, "tokyo")
    for sequence in range(40):
        world.source.append(*make_batch(sequence))
    world.start()
    world.run_until_arrived(5)
    world.time.run_until(world.time.now + 10)
    for stage in ("sending", "sent"):
        found = [call for call in reports.calls if call[0] == stage]
        assert found == [(stage, sequence, "tokyo") for sequence in range(40)]
    assert reports.calls[0][0] == "sending"


async def test_the_deliverer_reports_what_became_of_a_batch() -> None:
    reports = Reports()
    world = World(trace=reports)
    async with world.running() as life:
        first = world.batch([entry(1), entry(1), entry(2)])
        second = world.batch([entry(2), entry(3)])
        await life.settled(await life.log(first, second))
    assert reports.calls == [("delivered", 0, 3, NOW_MS, 2), ("delivered", 1, 2, NOW_MS, 1)]


async def test_the_deliverer_reports_no_batch_of_its_own_site_and_no_mark() -> None:
    reports = Reports()
    world = World(trace=reports)
    async with world.running() as life:
        own = world.batch([entry(1)], origin="tokyo", incarnation=b"incarn_t")
        mark = world.batch([], kind=BatchKind.MARK)
        other = world.batch([entry(2)])
        await life.settled(await life.log(own, mark, other))
    assert [call[:2] for call in reports.calls] == [("delivered", other[0].name.sequence)]
