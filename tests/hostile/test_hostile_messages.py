"""Messages that no broker would take, in batches that a neighbour made up."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence

import pytest

from federation.mesh import IdentityRule
from relay.batches.format import decode_entries
from relay.batches.mesh_headers import DEATHS_HEADER, EXCHANGE_HEADER
from relay.bulk_amqp import content_header, field_table
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.local_exchange import Answer, Outgoing
from relay.delivery.memory_exchange import MemoryExchange
from relay.delivery.properties import DEATH_HEADER, MAX_EXPIRATION_MS, DeliveryStamp, text_field
from relay.packing.intake import Intake
from tests.relay.deliverer_world import World, entry

CUT_SHORT = b"\x80\x00\x09text"
NO_SUCH_TYPE = field_table.entry(b"h", b"F\0\0\0\3\1aZ")
NESTED = b"\x20\x00" + len(NO_SUCH_TYPE).to_bytes(4, "big") + NO_SUCH_TYPE
"""What RabbitMQ cannot read stands in a table within the headers."""
MESSAGE_ID_CUT_SHORT = b"\x00\x80\x09id"


class StrictExchange(MemoryExchange):
    """Ends the connection, as RabbitMQ does, on properties that it cannot read."""

    async def publish(
        self,
        exchange: str,
        messages: Sequence[Outgoing],
        *,
        timeout_s: float,
        on_sent: Callable[[object], None] | None = None,
    ) -> list[Answer]:
        for message in messages:
            try:
                content_header.check(message.properties)
            except MalformedProperties as error:
                self.break_off(f"frame error: {error}")
                return [Answer.UNKNOWN] * len(messages)
            left = content_header.text(message.properties, content_header.EXPIRATION)
            if left is not None and int(left) > 2**32 - 1:
                self.break_off("precondition failed: invalid expiration")
                return [Answer.UNKNOWN] * len(messages)
        return await super().publish(exchange, messages, timeout_s=timeout_s, on_sent=on_sent)


@pytest.mark.parametrize("properties", [b"", b"\x80", CUT_SHORT, NESTED, MESSAGE_ID_CUT_SHORT])
async def test_properties_that_end_the_connection_are_put_aside_and_the_flow_goes_on(
    properties: bytes,
) -> None:
    world = World(make_exchange=StrictExchange)
    bad = entry(2, properties=properties)
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1), bad, entry(3)])))
        await life.settled(await life.log(world.batch([entry(4)])))
        assert life.counters.quarantined == 1
    assert set(world.delivered()) == {"body 1", "body 3", "body 4"}
    (kept,) = [message for _, message in world.broker.messages["quarantine"]]
    assert decode_entries(kept.body) == [bad]
    assert b"cannot be read" in kept.properties


async def test_a_deadline_at_the_end_of_time_is_told_as_the_longest_that_a_broker_takes() -> None:
    world = World(make_exchange=StrictExchange)
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry(1, deadline_ms=2**64 - 1)])))
    ((_, message),) = world.broker.messages["orders.queue"]
    left = content_header.text(message.properties, content_header.EXPIRATION)
    assert left == str(MAX_EXPIRATION_MS).encode()


def nested(levels: int) -> bytes:
    """A table with an array in an array in an array..."""
    return b"\1a" + b"".join(b"A" + (5 * n).to_bytes(4, "big") for n in reversed(range(levels)))


def test_tables_in_tables_take_time_by_their_bytes_and_not_by_their_square() -> None:
    def seconds(levels: int) -> float:
        table = nested(levels)
        began = time.process_time()
        field_table.check(table)
        return time.process_time() - began

    assert seconds(100_000) < 40 * max(seconds(10_000) for _ in range(3))


def test_an_array_of_nothings_takes_no_memory_to_check_and_a_huge_one_is_no_frame() -> None:
    table = b"\1aA" + (100_000).to_bytes(4, "big") + b"V" * 100_000
    properties = b"\x20\x00" + len(table).to_bytes(4, "big") + table
    tracemalloc.start()
    try:
        content_header.check(properties)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(table)
    finally:
        tracemalloc.stop()
    with pytest.raises(MalformedProperties, match="more than a frame"):
        content_header.check(bytes(content_header.MAX_CHECKED_BYTES + 1))


@pytest.mark.parametrize("died", [False, True], ids=["alive", "died"])
@pytest.mark.parametrize("forged", [EXCHANGE_HEADER, DEATHS_HEADER])
def test_what_a_neighbour_forged_does_not_come_round_as_a_message_of_this_site(
    forged: bytes, died: bool
) -> None:
    headers = text_field(forged, b"elsewhere")
    if died:
        headers += field_table.entry(DEATH_HEADER, b"A\0\0\0\1V")
    sent = content_header.rewrite(content_header.NONE_PRESENT, {}, headers)
    delivered = DeliveryStamp("orders", ("lyon", "tokyo"), "relay").apply(sent, flagged=False)
    intake = Intake("orders", IdentityRule(), ("relay",), bytes)
    assert intake.clean(delivered) is None
