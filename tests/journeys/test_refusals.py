"""What a queue refuses is tried again, flagged, then a dead letter; nothing else is touched."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.journeys.application import Inbox, Letter, at, counters_say, letter, standing
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, at_rest, counted, running_mesh
from tests.live_brokers import BrokerPool
from tests.waiting import until

PAIR = ("paris", "tokyo")
pytestmark = SHARED
FULL = {"x_max_length": 1, "x_overflow": "reject-publish"}
REFUSED = [f"refused {n}" for n in range(4)]


def letters(*bodies: str) -> list[Letter]:
    return [letter(body.encode(), str(uuid.uuid4()), why=b"as sent") for body in bodies]


def check_repeats(healthy: Inbox) -> Counter[str]:
    """Each first copy unflagged, in the order of sending, each further one flagged; how many."""
    firsts = [m.body.decode() for m in healthy.got if not m.flagged]
    assert firsts == ["fills it", *REFUSED]
    seen: set[bytes] = set()
    for message in healthy.got:
        assert message.flagged == (message.body in seen), message.body
        seen.add(message.body)
    return Counter(m.body.decode() for m in healthy.got if m.flagged)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    hasty = {"max_attempts": 3, "backoff": ["0.05s", "0.2s"]}
    patient = {"max_attempts": 1000, "backoff": ["0.05s", "0.1s"]}
    async with running_mesh(
        broker_pool,
        tmp_path_factory.mktemp("refusals"),
        *PAIR,
        topology="complete",
        exchanges=[
            {"name": "hasty", "type": "fanout", "retry": hasty},
            {"name": "patient", "type": "fanout", "retry": patient},
            {"name": "orders"},
        ],
    ) as mesh:
        yield mesh


async def test_beside_a_full_queue_a_healthy_one_gets_flagged_repeats_and_the_rest_dead_letters(
    pair: LiveMesh,
) -> None:
    dead_letters = f"isthmus.{pair.mesh.name}.dead"
    async with (
        at(pair, *PAIR) as (paris, tokyo),
        at(pair, "tokyo", as_operator=True) as (operator,),
    ):
        await tokyo.declare("full", "hasty", "", **FULL)
        healthy = await tokyo.listen("hasty", "", queue="healthy")
        sent = letters("fills it", *REFUSED)
        async with counted(
            pair, "tokyo", dead_lettered=4, delivered=1, redelivered=0, duplicates=0
        ):
            await paris.post("hasty", sent[0])
            await healthy.has(1)
            await paris.post("hasty", *sent[1:])
        assert check_repeats(healthy) == dict.fromkeys(REFUSED, 2)

        graves = await (await operator.consume(dead_letters)).has(4)
        for one, grave in zip(sent[1:], graves, strict=True):
            assert grave.body == one.body
            assert grave.as_sent == one.properties
            assert (
                grave.text_header(b"x-mesh-dead-reason")
                == "a queue refused it (full, reject-publish)"
            )
            assert grave.text_header(b"x-mesh-dead-attempts") == "3"
            assert grave.text_header(b"x-mesh-exchange") == "hasty"
            assert grave.text_header(b"x-mesh-routing-key") == one.key.decode()
            assert grave.path == PAIR

        # A dead letter is done with: the flow goes on, and the queue takes what comes next.
        full = await tokyo.consume("full")
        await full.has(1)
        await paris.post("hasty", *letters("after"))
        assert [m.body for m in await full.has(2)] == [b"fills it", b"after"]
        assert not full.got[-1].flagged


async def test_while_one_exchange_waits_for_a_full_queue_the_others_go_on(pair: LiveMesh) -> None:
    async with at(pair, *PAIR) as (paris, tokyo):
        await tokyo.declare("crowded", "patient", "", **FULL)
        healthy = await tokyo.listen("patient", "", queue="airy")
        orders = await tokyo.listen("orders")
        back_home = await paris.listen("patient", "", queue="airy")
        redelivered = (await at_rest(pair))["sites"]["tokyo"]["redelivered"]
        async with counted(pair, "tokyo", dead_lettered=0, delivered=505, duplicates=0):
            await paris.post("patient", *letters("fills it"))
            await healthy.has(1)
            await paris.post("patient", *letters(*REFUSED))
            assert "reject-publish" in await standing(pair, "tokyo", "paris/patient")
            # Nothing but room in that queue ends its wait: whatever comes now came meanwhile.
            await paris.post("orders", *letters(*(f"order {n}" for n in range(500))))
            await orders.has(500)
            await tokyo.post("patient", *letters("the other way"))
            await until(lambda: len(back_home.got) == 6, "the same exchange, the other way", 180)
            await standing(pair, "tokyo", "paris/patient")

            crowded = await tokyo.consume("crowded")
            await until(lambda: len(crowded.got) >= 5, lambda: str(crowded.bodies), 180)
        # It has each once, those that it refused flagged: for all it says, they may be repeats. The
        # flow stands from the first refusal on, which may come before the last of them is sent.
        theirs = [m for m in crowded.got if m.body != b"the other way"]
        assert [m.body.decode() for m in theirs] == ["fills it", *REFUSED]
        refused = sum(m.flagged for m in theirs)
        assert refused > 0
        assert [m.flagged for m in theirs[1:]] == [n < refused for n in range(len(REFUSED))]
        healthy.got = [m for m in healthy.got if m.body != b"the other way"]
        assert set(check_repeats(healthy)) == set(REFUSED[:refused])
        await counters_say(pair, "tokyo", redelivered=redelivered + refused)
