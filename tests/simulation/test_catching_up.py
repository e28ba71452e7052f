"""What is calculated of an outage is what real nodes take over a line that is as slow as that."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from federation.mesh import Mesh
from federation.planning.disk_need import PublishRates
from isthmus.outage.figures import flows_of, kept_of, outage_cost
from isthmus.outage.question import Lines, Question
from relay.bulk_amqp.content_header import DELIVERY_MODE, NONE_PRESENT, rewrite
from relay.delivery.local_exchange import Outgoing
from simulation.outage import Failure, observe_outage
from simulation.virtual_time import run_in_virtual_time
from simulation.world import World
from tests.federation.meshes import mesh_of

PAIR = """\
mesh: acme
topology: {tree: a}
exchanges: [{name: orders, from: [b]}]
sites: {a: {}, b: {parent: a}}
"""
SIZE = 20_000
LINE = 60_000.0
"""Bytes a second, of which those that come new take a third."""
OUTAGE_S = 60.0
AGE_S = 2.0
"""Of the newest message: so young, and all has been caught up with."""
BEFORE, NOTICED_AFTER = 10, 20
"""Messages, of which there is one a second: before the line is cut, and until that is noticed."""
WITHIN_S = 120.0


def test_catching_up_takes_as_long_as_is_calculated(tmp_path: Path) -> None:
    mesh = mesh_of(PAIR)
    failure = Failure(frozenset(["b-a"]), frozenset())
    question = Question(("b-a",), failure, OUTAGE_S, PublishRates(1.0), SIZE, Lines(LINE))
    kept = kept_of(mesh, question)
    told = outage_cost(
        mesh, question, observe_outage(mesh, flows_of(mesh, question), failure, kept)
    )
    lag = told.sites["a"]
    assert lag.messages == OUTAGE_S
    assert lag.catch_up_s == pytest.approx(31, abs=1)

    lacking, seconds = run_in_virtual_time(_real(mesh, tmp_path))
    assert lacking == pytest.approx(lag.messages, abs=2)
    assert seconds == pytest.approx(lag.catch_up_s, rel=0.1)


async def _real(mesh: Mesh, folder: Path) -> tuple[int, float]:
    """One message a second over a line that is cut for a minute: how many lack when it is mended,
    and seconds from then on, but for those until the link is connected again.
    """
    world = World(mesh, folder, random.Random(1))
    loop = asyncio.get_running_loop()
    crossing = world.network.crossings["b-a"]
    crossing.line.bytes_per_s = LINE
    published: list[float] = []
    chance = random.Random(1)

    def publish() -> None:
        body = f"b/{len(published)} ".encode() + chance.randbytes(SIZE)
        properties = rewrite(NONE_PRESENT, {DELIVERY_MODE: 2})
        world.brokers["b"].publish("orders", Outgoing(b"key", properties, body))
        published.append(loop.time())
        loop.call_later(1.0, publish)

    def came() -> int:
        return len(world.applications.arrived["orders"]["a"])

    def has_caught_up() -> bool:
        return sum(at < loop.time() - AGE_S for at in published) <= came()

    async def until(condition: Callable[[], bool]) -> None:
        await world.until(condition, lambda: f"{came()} of {len(published)} came", WITHIN_S)

    world.start()
    try:
        await until(world.is_at_rest)
        publish()
        await until(lambda: len(published) > BEFORE and has_caught_up())
        crossing.cut()
        away = len(published)
        await until(lambda: len(published) >= away + NOTICED_AFTER)
        crossing.meeting.silence_noticed()
        await until(lambda: len(published) >= away + OUTAGE_S)
        before = came()
        lacking = len(published) - before
        crossing.mend()
        mended = loop.time()
        await until(lambda: came() > before)
        waited = loop.time() - mended
        await until(has_caught_up)
        # What came while the link was not there yet is a longer outage, not slower catching up.
        more = waited / OUTAGE_S
        return lacking, (loop.time() - mended - waited) / (1 + more)
    finally:
        await world.kill()
