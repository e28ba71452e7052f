"""The mark that a deliverer leaves in its broker: never past what the log has kept."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from relay.node.housekeeping import Housekeeping
from tests.log_world import (
    LogWorld,
    LogWriter,
    append_and_check,
    ending_run,
    in_one_life,
    take_batches,
)


class Synced:
    """Of a state's store, what is asked for here."""

    @property
    def store(self) -> Synced:
        return self

    async def synced(self) -> None:
        await asyncio.sleep(0)


async def positioned(writer: LogWriter) -> Housekeeping:
    """With the deliverer's position at the tenth batch."""
    await append_and_check(writer, *range(10))
    reader = writer.reader(None, name="deliverer")
    place = writer.safe_position((await take_batches(reader, 10))[-1].place)
    housekeeping = Housekeeping.__new__(Housekeeping)
    fields: dict[str, Any] = {
        "_state": cast(Any, Synced()),
        "_writer": writer,
        "_position": lambda: place,
        "_marked": -1,
    }
    for name, value in fields.items():
        setattr(housekeeping, name, value)
    return housekeeping


@in_one_life()
async def test_it_is_stored_at_the_position(world: LogWorld, writer: LogWriter) -> None:
    await (await positioned(writer)).store_mark()
    assert world.stream.marks == {"deliverer": 9}


@in_one_life()
async def test_it_is_not_stored_where_the_log_has_lost_the_place_meanwhile(
    world: LogWorld, writer: LogWriter
) -> None:
    housekeeping = await positioned(writer)
    async with ending_run(writer):
        world.stream.lose_tail(4)
    await housekeeping.store_mark()
    assert world.stream.marks == {}
