"""The packer under random crashes, losses of connections and late bytes, in virtual time."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from federation.mesh import IdentityRule
from relay.batches.batch import MAX_ENTRIES
from relay.packing.memory_egress import Returns
from tests.relay.packer_world import PackerWorld, Process, numbered
from tests.virtual_time import in_virtual_time


@pytest.mark.parametrize(
    ("seed", "narrowed"),
    [
        pytest.param(seed, seed >= 9, marks=pytest.mark.slow if seed % 2 else ())
        for seed in range(16)
    ],
)
@pytest.mark.parametrize("alike", [False, True], ids=["different", "alike"])
@pytest.mark.parametrize("returns", Returns)
@in_virtual_time
async def test_whatever_happens_nothing_is_lost_and_nothing_repeated_unflagged(
    seed: int, narrowed: bool, alike: bool, returns: Returns
) -> None:
    world = PackerWorld(
        seed, exchanges=("orders", "prices"), identity=IdentityRule(), returns=returns
    )
    chance = world.chance
    count = 0
    crashes = 0
    process: Process | None = None
    for _ in range(60):
        what = chance.random()
        if process is None:
            if narrowed:  # another file each time
                sites = {site: (f"#.{chance.choice('abc')}.#",) for site in ("oslo", "rome")}
                world.narrow(sites, f"r{crashes}")
            process = world.start()
            if chance.random() < 0.8:
                await process.ready()
        elif what < 0.06:
            crashes += 1
            await process.kill()
            process = None
        elif what < 0.12:
            crashes += 1
            if returns is Returns.SHUFFLED and chance.random() < 0.5:
                world.broker.flap()
            else:
                world.broker.break_connections()
        elif what < 0.17:
            crashes += 1
            world.stream.break_connections()
        elif what < 0.21:
            crashes += 1
            world.stream.break_after_storing()
        elif what < 0.26:
            world.stream.hold_next_appends()
        elif what < 0.31:
            world.stream.break_connections()
            world.stream.release_held()
            crashes += 1
        else:
            for exchange in world.published:
                size = chance.choice([1, 1, 10, 300])
                if alike:
                    bodies = [chance.choice([b"x", b"y"]) for _ in range(size)]
                else:
                    bodies = numbered(size, count)
                    count += size
                for body in bodies if narrowed else ():
                    key = chance.choice([b"a", b"b", b"b.c"])
                    own = not alike and chance.random() < 0.5
                    said = b"\0\x80\x24" + str(uuid.UUID(int=chance.getrandbits(128))).encode()
                    properties = said if own else b"\0\0"
                    world.publish(body, exchange=exchange, key=key, properties=properties)
                world.publish(*(() if narrowed else bodies), exchange=exchange)
        await asyncio.sleep(chance.choice([0.0, 0.001, 0.005, 0.03, 0.5]))
    world.stream.break_connections()
    world.stream.release_held()
    if process is None:
        process = world.start()
    await process.ready()
    for exchange in world.published:
        await world.drained(exchange)
    await process.stop()
    for exchange in world.published:
        seen = world.assert_nothing_lost_nor_repeated(exchange)
        if not alike:
            doubtful = sum(entry.doubtful for entry in seen.entries.get(exchange, []))
            assert doubtful <= MAX_ENTRIES * crashes
        if not alike and returns is Returns.FIFO:
            certain = [e for e in seen.entries.get(exchange, []) if not e.doubtful]
            world.assert_in_order(certain, exchange)
