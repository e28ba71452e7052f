"""Reading back what was appended: what no stored position may pass."""

from __future__ import annotations

import asyncio

from relay.log.writer import LogWriter
from tests.log_batches import batch_name
from tests.log_world import (
    LogWorld,
    append,
    append_and_check,
    ending_run,
    in_one_life,
    name_at,
    take,
    until_checked,
)


@in_one_life(check_every_s=30)
async def test_a_stored_position_never_passes_what_was_read_back(
    world: LogWorld, writer: LogWriter
) -> None:
    reader = writer.reader(None, name="test")
    assert writer.safe_position(reader.place) is None
    await append(writer, 0)
    await take(reader, 1)
    await until_checked(writer, 0)
    await append(writer, *range(1, 20))
    await take(reader, 19)
    assert writer.safe_position(reader.place) == writer.checked
    assert name_at(writer.checked) == batch_name(0)
    await until_checked(writer, 19)
    position = writer.safe_position(reader.place)
    assert position is not None
    assert position.name == batch_name(19)
    assert position.offset == 19


@in_one_life(check_every_s=600, check_after_names=50)
async def test_many_names_to_check_are_not_left_for_a_second(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, 0)
    async with asyncio.timeout(1):
        await append_and_check(writer, *range(1, 60))


@in_one_life()
async def test_a_confirmed_batch_that_cannot_be_read_back_is_not_believed(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, 0)
    async with ending_run(writer):
        await append(writer, 1)
        await asyncio.sleep(0)
        # As if the broker had lost it without dropping the connection.
        world.stream._chunks.pop()
    assert batch_name(1) not in writer.logged
