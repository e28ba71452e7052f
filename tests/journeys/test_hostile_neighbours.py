"""A neighbour's link user in the wrong hands: each lie is refused, counted and put aside with its
reason, and what others send goes on.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from relay.batches.batch import BatchHeader
from relay.batches.format import MAX_PATH_SITES
from relay.links.settings import MIB, LinkSettings
from relay.links.wire import (
    NO_NONCE,
    NO_RUN,
    Ack,
    BatchFrame,
    Cause,
    Over,
    Refused,
    encode_ack,
    encode_hello,
    encode_members_frame,
    encode_over,
    encode_pulse,
    encode_refused,
)
from tests.journeys.application import at, counters_say, letter
from tests.journeys.hostile_neighbour import (
    HostileReceiver,
    HostileSender,
    hostile_receiver,
    hostile_sender,
    of_origin,
)
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, running_mesh
from tests.live_brokers import BrokerPool
from tests.waiting import until

SITES = ("paris", "tokyo", "sydney")
pytestmark = [SHARED, pytest.mark.any_release]
WINDOW = LinkSettings().window_bytes
FLOOD = 10
"""Windows, without waiting for any answer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    """Tokyo and sydney are linked to paris; nobody runs tokyo's node."""
    links = [{"from": "paris", "to": to, "both": True} for to in ("tokyo", "sydney")]
    async with running_mesh(
        broker_pool,
        tmp_path_factory.mktemp("hostile"),
        *SITES,
        without=("tokyo",),
        topology="custom",
        links=links,
        exchanges=[{"name": "orders"}],
    ) as made:
        yield made


@contextlib.asynccontextmanager
async def tokyo(mesh: LiveMesh, also: int = 0) -> AsyncIterator[HostileSender]:
    """In the wrong hands, in a session with paris; what sydney publishes meanwhile comes there, and
    what tokyo sends afterwards is taken. `also`: messages that are taken before.
    """
    (link,) = [one for one in mesh.mesh.links_to("paris") if one.sender == "tokyo"]
    async with hostile_sender(mesh.book, link) as sender, at(mesh, "sydney", "paris") as both:
        sydney, paris = both
        inbox = await paris.listen("orders")
        await sender.welcomed()
        yield sender
        await sydney.post("orders", *(letter(b"%d" % n, str(uuid.uuid4())) for n in range(100)))
        await sender.welcomed()
        sender.send(*honest(b"from tokyo"))
        await sender.hears(Ack, lambda ack: ack.logged >= 1)
        got = await inbox.has(101 + also, within_s=60)
        bodies = {m.body for m in got if len(m.body) < 100}
        assert {*(b"%d" % n for n in range(100)), b"from tokyo"} <= bodies


def honest(body: bytes = b"body") -> tuple[BatchHeader, bytes]:
    """One that tokyo may send."""
    return of_origin("tokyo", "tokyo", body=body)


OTHERS = tuple(f"s{n}" for n in range(MAX_PATH_SITES - 1))
TOO_MANY = tuple(f"{n:x}" for n in range(9_999))
NO_START = "the path does not start with the origin"
LIES = {
    "a path that ends elsewhere": (of_origin("tokyo", "tokyo", "lima"), "its path ends at 'lima'"),
    "a path that had this site": (of_origin("lima", "lima", "paris", "tokyo"), "on its path"),
    "a path without room": (of_origin("s0", *OTHERS, "tokyo"), "has no room for 'paris'"),
    "a path of 10,000 sites": (of_origin("0", *TOO_MANY, "tokyo"), "a path of 10000 sites"),
    "a batch of our own making": (of_origin("paris", "tokyo"), NO_START),
    "our own, and sent back": (of_origin("paris", "paris", "tokyo"), "on its path"),
    "one of a site on the other side": (of_origin("sydney", "tokyo"), NO_START),
}


async def test_a_batch_that_is_not_the_neighbours_to_send_is_put_aside(mesh: LiveMesh) -> None:
    queue = f"isthmus.{mesh.mesh.name}.quarantine"
    async with at(mesh, "paris", as_operator=True) as (operator,), tokyo(mesh) as sender:
        kept = await operator.consume(queue)
        for number, (told, why) in enumerate(LIES.values(), 1):
            # As one that was damaged on the way before: no second try for what is no batch at all.
            sender.send(*told, suspect=True)
            answer = await sender.hears(Refused, lambda one, n=number: one.number == n)  # type: ignore[misc]
            assert why in answer.reason
            await kept.has(number)
            assert why in (kept.got[-1].text_header(b"x-mesh-quarantine-reason") or "")
        await counters_say(mesh, "paris", quarantined=len(LIES))


async def test_a_damaged_batch_is_asked_for_again_and_then_put_aside(mesh: LiveMesh) -> None:
    before = (await mesh.status())["sites"]["paris"]["quarantined"]
    async with tokyo(mesh) as sender:
        header, data = honest()
        damaged = data[:-3] + bytes(3)
        sender.send(header, damaged)
        over = await sender.hears(Over)
        assert over.cause is Cause.BAD_BATCH
        await sender.welcomed()
        sender.send(header, damaged, suspect=True)
        assert (await sender.hears(Refused)).number == 1
        await counters_say(mesh, "paris", quarantined=before + 1)


@pytest.mark.parametrize("number", [2, 2**63, 2**64 - 1])
async def test_numbers_that_are_not_the_next_end_the_session(mesh: LiveMesh, number: int) -> None:
    async with tokyo(mesh) as sender:
        sender.send(*honest(), number=number)
        over = await sender.hears(Over)
        assert (over.cause, over.number) == (Cause.GAP, 1)


async def test_noise_and_frames_of_the_other_end_are_dropped(mesh: LiveMesh) -> None:
    chance = random.Random(7)
    async with tokyo(mesh, also=1) as sender:
        welcome = await sender.welcomed()
        version, run = welcome.version, welcome.run
        for size in (0, 1, 21, 22, 30, 1000):
            for _ in range(50):
                sender.raw(chance.randbytes(size))
        sender.raw(encode_hello(run))
        sender.raw(encode_ack(version, Ack(sender.nonce, run, 2**64 - 1, 2**64 - 1, 0, 0)))
        sender.raw(encode_over(version, sender.nonce, run, Cause.OTHER, 0, "x" * 100_000))
        sender.raw(encode_members_frame(version, sender.nonce, run, "r", chance.randbytes(1000)))
        sender.raw(encode_pulse(version, NO_NONCE, NO_RUN, 2**64 - 1, 2**64 - 1, None))
        sender.send(*honest(b"amid noise"))
        await sender.hears(Ack, lambda ack: ack.logged == 1)


async def test_a_flood_takes_no_more_than_the_windows_that_there_is_room_for(
    mesh: LiveMesh,
) -> None:
    before = (await mesh.status())["sites"]["paris"]
    async with tokyo(mesh, also=1) as sender:
        noise = random.Random(8).randbytes(MIB // 4)
        header, data = honest(noise)
        # One that every log has from then on: what floods is the link, and no site's disk.
        sender.send(header, data)
        await sender.hears(Ack, lambda ack: ack.logged == 1)
        for _ in range(FLOOD * WINDOW // len(data)):
            sender.send(header, data)
        await sender.hears(Ack | Over, lambda one: isinstance(one, Over) or one.logged > 300)  # type: ignore[arg-type]
    # What came again was known; what was not taken ended the session.
    log = (await mesh.status())["sites"]["paris"]["log"]
    assert log["appended_bytes"] - before["log"]["appended_bytes"] < 2 * len(data)
    await counters_say(mesh, "paris", quarantined=before["quarantined"])


@contextlib.asynccontextmanager
async def receiving(mesh: LiveMesh) -> AsyncIterator[HostileReceiver]:
    """Tokyo as the receiver of what paris has, in the wrong hands; what sydney publishes after all
    that it says comes to paris.
    """
    (link,) = mesh.mesh.links_to("tokyo")
    async with hostile_receiver(mesh.book, link) as tokyo, at(mesh, "sydney", "paris") as both:
        sydney, paris = both
        inbox = await paris.listen("orders")
        await sydney.post("orders", letter(b"before", str(uuid.uuid4())))
        yield tokyo
        await sydney.post("orders", *(letter(b"%d" % n, str(uuid.uuid4())) for n in range(100)))
        wanted = {b"before", *(b"%d" % n for n in range(100))}
        await until(lambda: wanted <= {*inbox.bodies}, "what sydney published has come", 60)


async def link_status_once(
    mesh: LiveMesh, is_it: Callable[[dict[str, Any]], object], what: str
) -> dict[str, Any]:
    """What status says of the link to tokyo, once that holds."""

    def found(told: dict[str, Any]) -> dict[str, Any] | None:
        (link,) = [one for one in told["links"] if (one["from"], one["to"]) == ("paris", "tokyo")]
        return link if is_it(link) else None

    link: dict[str, Any] = await mesh.until_told(found, what)
    return link


async def test_acks_for_what_was_never_sent_are_not_believed(mesh: LiveMesh) -> None:
    async with receiving(mesh) as tokyo:
        await tokyo.welcomes()
        first = await tokyo.hears(BatchFrame)
        assert first.number == 1
        before = await link_status_once(mesh, lambda link: link["state"] != "down", "in session")
        for number in (2**63, 2**64 - 1):
            tokyo.acks(number, number)
        link = await link_status_once(
            mesh,
            lambda link: link["dropped"].get("acknowledges what was not sent", 0) >= 2,
            "paris counts acks for what it never sent",
        )
        assert link["acked"] == before["acked"]
        assert link["lag_messages"] > 0


async def test_noise_and_frames_of_the_other_end_are_dropped_by_a_sender(mesh: LiveMesh) -> None:
    chance = random.Random(9)
    async with receiving(mesh) as tokyo:
        await tokyo.welcomes()
        await tokyo.hears(BatchFrame)
        for size in (0, 1, 21, 22, 30, 1000):
            for _ in range(50):
                tokyo.raw(chance.randbytes(size))
        tokyo.raw(encode_pulse(2, tokyo.nonce, tokyo.run, 2**64 - 1, 2**64 - 1, None))
        tokyo.raw(encode_refused(2, tokyo.nonce, tokyo.run, 2**64 - 1, "x" * 100_000))
        link = await link_status_once(
            mesh,
            lambda link: link["dropped"].get("refuses what is not under way"),
            "paris counts a refusal of what it never sent",
        )
        assert sum(link["dropped"].values()) > 300
        assert link["refused"] == 0


async def test_names_that_are_none_are_no_welcome(mesh: LiveMesh) -> None:
    async with receiving(mesh) as tokyo:
        await tokyo.welcomes(random.Random(10).randbytes(1000))
        await link_status_once(
            mesh,
            lambda link: link["dropped"].get("bad set of names"),
            "paris counts a set of names that is none",
        )
        await tokyo.welcomes()
        await tokyo.hears(BatchFrame)
