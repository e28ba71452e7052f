"""A mesh that signs, with a neighbour that has its password and its own key, and lies: what it
sends in another's name is refused, and the others' traffic goes on.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from federation.signing_keys import private_key_pem
from relay.batches.batch import BatchName, Entry, Predecessor, Series
from relay.batches.format import read_header
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.links.wire import Ack, BatchFrame, Cause, Over, Refused
from tests.journeys.application import Inbox, at, counters_say, letter
from tests.journeys.hostile_neighbour import (
    HostileSender,
    hostile_receiver,
    hostile_sender,
    of_origin,
)
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, running_mesh
from tests.live_brokers import BrokerPool
from tests.signed_batches import private_key, public_key, signer
from tests.waiting import until

SITES = ("paris", "tokyo", "sydney")
pytestmark = [SHARED, pytest.mark.any_release]
MESH = "signed"


def keys(folder: Path, site: str, *names: str) -> dict[str, Any]:
    """What the mesh file says of a site that signs with the last of these keys."""
    file = folder / f"{names[-1]}.pem"
    file.write_bytes(private_key_pem(private_key(names[-1])))
    return {"public_key": [public_key(name) for name in names], "private_key": f"file:{file}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    """Tokyo and sydney are linked to paris; nobody runs tokyo's node."""
    folder = tmp_path_factory.mktemp("signed")
    links = [{"from": "paris", "to": to, "both": True} for to in ("tokyo", "sydney")]
    async with running_mesh(
        broker_pool,
        folder,
        *SITES,
        without=("tokyo",),
        mesh=MESH,
        batch_format=2,
        signing="ed25519",
        topology="custom",
        links=links,
        exchanges=[{"name": "orders"}, {"name": "prices", "from": ["sydney"]}],
        sites={site: keys(folder, site, site) for site in SITES},
    ) as made:
        yield made


TOKYO = signer("tokyo", MESH)


@contextlib.asynccontextmanager
async def tokyo(mesh: LiveMesh) -> AsyncIterator[tuple[HostileSender, Inbox]]:
    """In the wrong hands, with its own key, in a session with paris; what sydney publishes
    meanwhile comes there, and what tokyo sends in its own name afterwards is taken. Beside it what
    comes to paris.
    """
    (link,) = [one for one in mesh.mesh.links_to("paris") if one.sender == "tokyo"]
    async with hostile_sender(mesh.book, link) as sender, at(mesh, "sydney", "paris") as both:
        sydney, paris = both
        inbox = await paris.listen("orders")
        await sender.welcomed()
        yield sender, inbox
        await sydney.post("orders", *(letter(b"%d" % n, str(uuid.uuid4())) for n in range(100)))
        await sender.welcomed()
        sender.send(*of_origin("tokyo", "tokyo", by=TOKYO, body=b"from tokyo"))
        await sender.hears(Ack, lambda ack: ack.logged >= 1)
        wanted = {*(b"%d" % n for n in range(100)), b"from tokyo"}
        await until(
            lambda: wanted <= {*inbox.bodies},
            lambda: f"{len(wanted - {*inbox.bodies})} of the others' messages are missing",
            60,
        )


async def run_of_sydney(mesh: LiveMesh) -> bytes:
    """The incarnation of its packer, which every neighbour sees in its batches."""
    (link,) = mesh.mesh.links_to("tokyo")
    async with at(mesh, "sydney") as (sydney,), hostile_receiver(mesh.book, link) as tokyo:
        await sydney.post("orders", letter(b"seen", str(uuid.uuid4())))
        await tokyo.welcomes()
        said = await tokyo.hears(BatchFrame, lambda one: of_sydney(one) is not None)
        found = of_sydney(said)
        assert found is not None
        return found


def of_sydney(said: BatchFrame) -> bytes | None:
    series = read_header(said.batch).name.series
    return series.incarnation if (series.origin, series.exchange) == ("sydney", "orders") else None


async def refused_as(
    mesh: LiveMesh, sender: HostileSender, lies: Sequence[tuple[Any, bytes]], why: str
) -> None:
    """Each is refused with that reason, counted, and in the quarantine."""
    before = (await mesh.status())["sites"]["paris"]
    for number, (header, data) in enumerate(lies, 1):
        sender.send(header, data)
        answer = await sender.hears(Refused, lambda one, n=number: one.number == n)  # type: ignore[misc]
        assert why in answer.reason
    await counters_say(
        mesh,
        "paris",
        quarantined=before["quarantined"] + len(lies),
        batches_refused=before["batches_refused"] + len(lies),
        batches_not_authentic=before["batches_not_authentic"] + len(lies),
    )


async def test_a_batch_in_another_sites_name_is_refused(mesh: LiveMesh) -> None:
    async with tokyo(mesh) as (sender, _):
        # Its key is named in the batch: whose key that is, is another matter.
        named = of_origin("sydney", "sydney", "tokyo", by=signer("sydney", MESH))[0]
        forged = named.fields[0]._replace(value=named.fields[0].value[:8] + bytes(64))
        lie = of_origin("sydney", "sydney", "tokyo", format=2, fields=(forged,))
        await refused_as(mesh, sender, [lie], "the signature is not that of 'sydney'")


async def test_what_nobody_signed_is_refused(mesh: LiveMesh) -> None:
    async with tokyo(mesh) as (sender, _):
        lies = [of_origin(site, site, "tokyo") for site in ("sydney", "lima")]
        lies.append(of_origin("tokyo", "tokyo"))
        await refused_as(mesh, sender, lies, "has not signed it, and this mesh signs")


async def test_names_sent_ahead_do_not_take_those_of_the_batches_to_come(mesh: LiveMesh) -> None:
    series = Series("sydney", await run_of_sydney(mesh), "orders", 0, ())
    async with tokyo(mesh) as (sender, _):
        ahead = [
            of_origin("sydney", "sydney", "tokyo", name=BatchName(series, number))
            for number in range(200)
        ]
        await refused_as(mesh, sender, ahead, "has not signed it")


async def test_nobody_else_says_where_a_sites_run_has_ended(mesh: LiveMesh) -> None:
    ended = (Predecessor(await run_of_sydney(mesh), -1),)
    async with tokyo(mesh) as (sender, _):
        void = of_origin("sydney", "sydney", "tokyo", predecessors=ended)
        await refused_as(mesh, sender, [void], "has not signed it")
        # In its own name it may say so of anybody's run: that counts for its own runs only.
        sender.send(*of_origin("tokyo", "tokyo", by=TOKYO, predecessors=ended, body=b"x"))
        await sender.hears(Ack, lambda ack: ack.logged >= 2)


async def test_what_a_site_may_not_send_holds_its_own_link_and_no_other(mesh: LiveMesh) -> None:
    series = Series("tokyo", b"hostile1", "prices", 0, ())
    async with tokyo(mesh) as (sender, _):
        sender.send(*of_origin("tokyo", "tokyo", by=TOKYO, name=BatchName(series, 0)))
        over = await sender.hears(Over)
        assert over.cause is Cause.ORIGIN_UNKNOWN
        assert "'tokyo' is not among those that may send to 'prices'" in over.reason
        await mesh.until_told(
            lambda told: over.reason in told["sites"]["paris"]["not_understood"].get("tokyo", ""),
            "paris says what it does not take from tokyo, and why",
        )


async def test_an_identity_sent_ahead_with_other_content_suppresses_nothing(
    mesh: LiveMesh,
) -> None:
    known = uuid.uuid4()
    before = (await mesh.status())["sites"]["paris"]["identity_conflicts"]
    async with tokyo(mesh) as (sender, inbox), at(mesh, "sydney") as (sydney,):
        now_ms = time.time_ns() // 1_000_000
        entry = Entry(known.bytes, b"order.new", NONE_PRESENT, b"false", now_ms)
        sender.send(*of_origin("tokyo", "tokyo", by=TOKYO, message=entry))
        await sender.hears(Ack, lambda ack: ack.logged >= 1)
        await sydney.post("orders", letter(b"true", str(known)))
        await until(lambda: {b"false", b"true"} <= {*inbox.bodies}, "both have come", 60)
        await counters_say(mesh, "paris", identity_conflicts=before + 1)


async def test_a_site_goes_over_to_another_key_while_messages_flow(mesh: LiveMesh) -> None:
    sites = mesh.document["sites"]
    async with at(mesh, "sydney", "paris") as (sydney, paris):
        inbox = await paris.listen("orders")
        said = []
        for names in (("sydney", "sydney-2"), ("sydney-2",)):
            sites["sydney"] = keys(mesh.folder, "sydney", *names)
            said.append(await mesh.change(sites=sites))
            await sydney.post("orders", letter(names[-1].encode(), str(uuid.uuid4())))
        await inbox.has(2)
    assert all("public_key" in one for one in said)
    assert (await mesh.status())["sites"]["paris"]["not_understood"] == {}


async def test_a_key_that_others_do_not_know_is_not_taken_up(mesh: LiveMesh) -> None:
    sites = mesh.document["sites"]
    right = sites["sydney"]
    wrong = keys(mesh.folder, "sydney", "wrong")["private_key"]
    mesh.document["sites"] = {**sites, "sydney": {**right, "private_key": wrong}}
    mesh.write()
    said = await mesh.until_told(
        lambda told: told["sites"]["sydney"]["file_problem"], "sydney does not take the file up"
    )
    assert "another one than those that the mesh file has of sydney" in said
    async with at(mesh, "sydney", "paris") as (sydney, paris):
        inbox = await paris.listen("orders")
        await sydney.post("orders", letter(b"with the former key", str(uuid.uuid4())))
        await inbox.has(1)
    await mesh.change(sites=sites)
