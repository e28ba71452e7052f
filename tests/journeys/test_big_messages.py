"""Messages of many pieces, while nodes are killed in the middle of them."""

from __future__ import annotations

import random
import uuid

import pytest

from tests.journeys.application import Inbox, at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.memory_watch import most_memory_mb
from tests.waiting import until

RING = ("paris", "tokyo", "sydney")
SIZES = (5 * 2**20, 50, 800_000, 3 * 2**20 + 7, 15 * 2**20)


def numbers(box: Inbox, *, flagged: bool) -> list[int]:
    return [int(m.body.split(b" ", 1)[0]) for m in box.got if m.flagged is flagged]


@pytest.mark.long
async def test_big_messages_arrive_whole_and_in_order_though_nodes_are_killed(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(*RING, topology="ring")
    mesh.start_each()
    await mesh.running()
    chance = random.Random(5)
    # Every other one without an identity: then its pieces are all that it is known by.
    bodies = [b"%d " % n + chance.randbytes(SIZES[n % len(SIZES)]) for n in range(30)]
    async with at(mesh, *RING) as (paris, tokyo, sydney):
        boxes = [await tokyo.listen("orders"), await sydney.listen("orders")]
        for n, body in enumerate(bodies):
            await paris.post("orders", letter(body, str(uuid.uuid4()) if n % 2 else ""))
            if n % 4 == 3:
                # In the middle of what was just posted, and of what queues behind it.
                site = RING[n // 4 % 3]
                mesh.kill(site)
                mesh.start([site])
        for box in boxes:
            await until(
                lambda box=box: (
                    {*numbers(box, flagged=False), *numbers(box, flagged=True)} >= set(range(30))
                ),
                lambda: mesh.logs(),
                240,
            )
            assert all(m.body == bodies[int(m.body.split(b" ", 1)[0])] for m in box.got)
            firsts = numbers(box, flagged=False)
            assert firsts == sorted(set(firsts)), "once each, in order; repeats are flagged"
    assert max(most_memory_mb(process.pid) for process in mesh.processes.values()) < 150
