"""Records that are no batches, on their way to the quarantine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from relay.batches.mesh_headers import OFFSET_HEADER, QUARANTINE_REASON_HEADER
from relay.bulk_amqp import content_header
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryExchange
from relay.node.bad_records import BadRecords
from tests.relay.deliverer_world import Life, World
from tests.virtual_time import in_virtual_time, let_pass


class ClosedAtFirst(MemoryExchange):
    """A broker whose connection goes as the first message is about to be sent."""

    has_gone = False

    async def publish(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float,
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer]:
        if not ClosedAtFirst.has_gone:
            ClosedAtFirst.has_gone = True
            self.break_off("the broker was restarted")
        return await super().publish(exchange, messages, timeout_s=timeout_s, on_sent=on_sent)


def quarantined(world: World) -> list[tuple[bytes, bytes, bytes]]:
    """Bodies, each with its reason and its offset."""
    return [
        (
            message.body,
            text_of(message, QUARANTINE_REASON_HEADER),
            text_of(message, OFFSET_HEADER),
        )
        for _, message in world.broker.messages["quarantine"]
    ]


def text_of(message: Outgoing, name: bytes) -> bytes:
    value = content_header.header(message.properties, name)
    assert value is not None
    return value[5:]  # behind its type and its length


@contextlib.asynccontextmanager
async def putting_aside(records: BadRecords, life: Life) -> AsyncIterator[None]:
    task = asyncio.create_task(records.run(life.context))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@in_virtual_time
async def test_a_record_that_is_no_batch_is_put_aside_with_its_reason_and_where_it_stood() -> None:
    world, records = World(), BadRecords("quarantine")
    records.add(7, b"noise", "no batch")
    async with world.running() as life, putting_aside(records, life):
        await life.until(lambda: len(quarantined(world)) == 1)
        records.add_from_link(b"more noise", "a bad checksum")
        await life.until(lambda: life.counters.quarantined == 2)
    assert quarantined(world) == [
        (b"noise", b"no batch", b"7"),
        (b"more noise", b"a bad checksum", b"-1"),
    ]


@in_virtual_time
async def test_a_bad_record_is_put_aside_though_the_connection_goes_as_it_is_sent() -> None:
    ClosedAtFirst.has_gone = False
    world, records = World(make_exchange=ClosedAtFirst), BadRecords("quarantine")
    records.add(7, b"noise", "no batch")
    async with world.running() as life, putting_aside(records, life):
        await life.until(lambda: life.counters.quarantined == 1)
    assert [body for body, _, _ in quarantined(world)] == [b"noise"]
    assert len(world.exchanges) == 2


@in_virtual_time
async def test_what_the_broker_refuses_waits_also_for_the_next_run_of_the_stages() -> None:
    world, records = World(), BadRecords("quarantine")
    world.broker.capacity["quarantine"] = 0
    records.add(7, b"noise", "no batch")
    records.add(9, b"more noise", "no batch")
    async with world.running() as life, putting_aside(records, life):
        await life.until(lambda: bool(world.exchanges))
        await let_pass(3)  # it is refused meanwhile
    assert life.counters.quarantined == 0
    del world.broker.capacity["quarantine"]
    async with world.running() as life, putting_aside(records, life):
        await life.until(lambda: life.counters.quarantined == 2)
    assert [body for body, _, _ in quarantined(world)] == [b"noise", b"more noise"]


@in_virtual_time
async def test_before_apply_has_declared_the_quarantine_a_bad_record_waits_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, records = World(), BadRecords("quarantine")
    del world.broker.exchanges["quarantine"]
    records.add(7, b"noise", "no batch")
    async with world.running() as life, putting_aside(records, life):
        await life.until(lambda: bool(world.exchanges))
        await let_pass(3)
        assert caplog.text.count("exchange 'quarantine' is not declared: `isthmus apply`") == 1
        world.broker.exchanges["quarantine"] = ["quarantine"]
        await life.until(lambda: life.counters.quarantined == 1)
    assert [body for body, _, _ in quarantined(world)] == [b"noise"]
