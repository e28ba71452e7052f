"""`isthmus bench` on a running mesh: what it counts, whom it leaves alone, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aio_pika
import pytest
import pytest_asyncio

from isthmus.bench.queues import EXPIRES_MS, QUEUE_PREFIX
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, running_mesh
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.traffic import TrafficSink
from tests.live_brokers import BrokerPool
from tests.waiting import until

pytestmark = [SHARED, pytest.mark.any_release]

SITES = ("paris", "tokyo")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    """Two sites, with an exchange for each test."""
    async with running_mesh(
        broker_pool,
        tmp_path_factory.mktemp("bench"),
        *SITES,
        topology="complete",
        exchanges=[
            {"name": "orders", "keys": ["order.#"]},
            {"name": "prices", "type": "direct", "keys": ["eur"], "to": ["tokyo"], "mode": "split"},
            {"name": "billed", "type": "fanout"},
            {"name": "held"},
            {"name": "ended"},
            {"name": "broken"},
            {"name": "again"},
        ],
    ) as made:
        yield made


async def begun(mesh: LiveMesh, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", "bench", str(mesh.file), "--json", *words),
        *("--state", str(mesh.state)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> tuple[int, dict[str, Any], str]:
    """Exit status, what it told, and what it said on the way."""
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out) if out else {}, err.decode()


async def bench(mesh: LiveMesh, *words: str) -> tuple[int, dict[str, Any], str]:
    return await ended(await begun(mesh, *words))


async def queues(mesh: LiveMesh, site: str) -> list[dict[str, Any]]:
    """Those of measurements."""
    found = await mesh.vhosts[site].api("GET", "/queues/{vhost}")
    return [queue for queue in found if queue["name"].startswith(QUEUE_PREFIX)]


async def nothing_is_left(mesh: LiveMesh) -> bool:
    return not any([await queues(mesh, site) for site in SITES])


async def cut(mesh: LiveMesh, site: str, name: str) -> bool:
    """End the connections of that name; whether there were any yet."""
    found = [
        one["name"]
        for one in await mesh.vhosts[site].api("GET", "/vhosts/{vhost}/connections")
        if one.get("client_properties", {}).get("connection_name") == name
    ]
    for one in found:
        await mesh.vhosts[site].api("DELETE", f"/connections/{quote(one, safe='')}")
    return bool(found)


async def test_all_that_was_published_is_counted_at_the_other_site(mesh: LiveMesh) -> None:
    code, told, said = await bench(
        mesh, "--exchange", "orders", "--rate", "200", "--duration", "1500ms", "--size", "300B"
    )
    assert code == 0, said
    assert told["key"] == "order.bench"
    assert [(pair["from"], pair["to"]) for pair in told["pairs"]] == [SITES, SITES[::-1]]
    for pair in told["pairs"]:
        assert 250 < pair["sent"] <= 301
        assert pair["delivered"] == pair["confirmed"] == pair["sent"]
        latency = pair["latency_ms"]
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert (told["missing"], told["duplicates_unflagged"], told["other_messages"]) == (0, 0, 0)
    assert "published" in said
    assert "delivered at tokyo" in said
    assert await nothing_is_left(mesh)


async def test_as_fast_as_it_goes_it_is_not_ahead_by_more_than_it_may(mesh: LiveMesh) -> None:
    code, told, said = await bench(
        mesh, "--exchange", "prices", "--duration", "1s", "--ahead", "50", "--queue-type", "classic"
    )
    assert code == 0, said
    (pair,) = told["pairs"]
    assert (pair["from"], pair["to"], told["key"]) == ("paris", "tokyo", "eur")
    assert pair["delivered"] == pair["sent"] > 50
    assert await nothing_is_left(mesh)


async def test_queues_of_others_get_nothing_unless_told_to(mesh: LiveMesh) -> None:
    await mesh.listen(["tokyo"], "billed", at_once=False)
    words = ("--exchange", "billed", "--from", "paris", "--rate", "50", "--duration", "1s")
    code, told, said = await bench(mesh, *words)
    assert (code, told) == (2, {})
    assert "tokyo: billed has queue sink.billed, bound by '#'" in said
    assert "--disturb-others" in said
    assert "paris: " not in said
    assert await nothing_is_left(mesh)

    mesh.sinks["tokyo"].resume()
    code, told, said = await bench(mesh, *words, "--disturb-others")
    assert code == 0, said
    sent = told["pairs"][0]["sent"]
    assert sent > 0
    await until(lambda: len(mesh.sinks["tokyo"].arrived) == sent, "the other has them too", 30)


@pytest.mark.slow
async def test_what_a_paused_site_does_not_deliver_is_missing(mesh: LiveMesh) -> None:
    assert (await isthmus(mesh, "pause", "--site", "tokyo"))[0] == 0
    try:
        words = ("--from", "paris", "--rate", "100", "--duration", "1s", "--wait", "1s")
        code, told, said = await bench(mesh, "--exchange", "held", *words)
    finally:
        assert (await isthmus(mesh, "resume", "--site", "tokyo"))[0] == 0
    assert code == 1, said
    (pair,) = told["pairs"]
    assert (pair["delivered"], pair["missing"]) == (0, pair["confirmed"])
    assert pair["confirmed"] > 0
    assert pair["latency_ms"] == {"p50": None, "p90": None, "p99": None, "max": None}
    assert not told["all_arrived_once"]
    assert await nothing_is_left(mesh)


async def test_ended_early_it_tells_what_there_is_and_leaves_nothing(mesh: LiveMesh) -> None:
    process = await begun(mesh, "--exchange", "ended", "--rate", "100", "--duration", "1h")
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            await process.stderr.readline()
        (queue,) = await queues(mesh, "tokyo")
        # Were it killed now, this would go by itself; and it never drops anything before.
        assert queue["arguments"] == {"x-queue-type": "quorum", "x-expires": EXPIRES_MS}
        process.send_signal(signal.SIGINT)
        code, told, said = await ended(process)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 0, said
    assert told["interrupted"]
    assert told["all_arrived_once"]
    assert all(0 < pair["sent"] == pair["delivered"] for pair in told["pairs"])
    assert await nothing_is_left(mesh)


async def test_copies_count_apart_by_their_flag(mesh: LiveMesh) -> None:
    words = ("--from", "paris", "--rate", "50", "--duration", "1h", "--disturb-others")
    sink = TrafficSink(mesh.uri("tokyo"), "tokyo", "again")
    sink.keep_raw = True
    await sink.start()
    process = await begun(mesh, "--exchange", "again", *words)
    try:
        await until(lambda: len(sink.raw) > 2, "messages arrive", 60)
        (queue,) = await queues(mesh, "tokyo")
        async with await aio_pika.connect(mesh.vhosts["tokyo"].amqp_uri) as connection:
            channel = await connection.channel()
            for delivery, flagged in zip(sink.raw, (True, False, False), strict=False):
                headers = {"x-mesh-redelivered": True} if flagged else {}
                copy = aio_pika.Message(delivery[5], headers=headers)
                await channel.default_exchange.publish(copy, queue["name"])
        process.send_signal(signal.SIGINT)
        code, told, said = await ended(process)
    finally:
        await sink.close()
        if process.returncode is None:
            process.kill()
    assert code == 1, said
    assert (told["duplicates_flagged"], told["duplicates_unflagged"]) == (1, 2)
    assert told["missing"] == 0


async def test_one_that_loses_its_queue_is_no_measurement(mesh: LiveMesh) -> None:
    words = ("--from", "paris", "--rate", "100", "--duration", "1h")
    process = await begun(mesh, "--exchange", "broken", *words)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            await process.stderr.readline()
        (queue,) = await queues(mesh, "tokyo")
        await mesh.vhosts["tokyo"].api("DELETE", f"/queues/{{vhost}}/{queue['name']}")
        code, told, said = await ended(process)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 3, said
    (problem,) = told["problems"]
    assert problem.startswith("tokyo listens no more: the broker cancelled consumer")
    assert told["pairs"][0]["delivered"] > 0


@pytest.mark.slow
async def test_one_that_loses_its_publisher_is_no_measurement(mesh: LiveMesh) -> None:
    words = ("--from", "paris", "--rate", "100", "--duration", "1h", "--wait", "1h")
    process = await begun(mesh, "--exchange", "broken", *words)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            await process.stderr.readline()
        await until(lambda: cut(mesh, "paris", "isthmus load: source"), "it is known there", 60)
        code, told, said = await ended(process)
    finally:
        if process.returncode is None:
            process.kill()
    assert code == 3, said
    (problem,) = told["problems"]
    assert problem.startswith("paris publishes no more: connection closed")
    (pair,) = told["pairs"]
    assert pair["confirmed"] - pair["missing"] <= pair["delivered"] <= pair["sent"]
    assert pair["missing"] == 0
    assert await nothing_is_left(mesh)


async def test_a_broker_that_is_away_is_said_and_nothing_is_published(
    mesh: LiveMesh, tmp_path: Path
) -> None:
    brokers = json.loads((mesh.state / "brokers.json").read_text())
    brokers["sites"]["tokyo"]["amqp_port"] = 1
    state = tmp_path / "state"
    state.mkdir()
    (state / "secrets.json").write_bytes((mesh.state / "secrets.json").read_bytes())
    (state / "brokers.json").write_text(json.dumps(brokers))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", "bench", str(mesh.file), "--exchange", "orders"),
        *("--state", str(state)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    code, told, said = await ended(process)
    assert (code, told) == (3, {})
    assert "the broker of tokyo cannot be used: " in said
    assert await nothing_is_left(mesh)
