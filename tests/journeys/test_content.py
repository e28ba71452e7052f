"""Large messages that a site of two nodes keeps in its Cassandra, and not in its log."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import uuid
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from relay import crash_points
from relay.batches.fragments import PIECE_BYTES
from relay.batches.mesh_headers import (
    CONTENT_BYTES_HEADER,
    CONTENT_ID_HEADER,
    CONTENT_SHA256_HEADER,
)
from relay.bulk_amqp.field_table import long_integer
from relay.content.contents import MARGIN_S
from relay.content.reference import ContentReference
from tests.journeys.application import at, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.content_site import (
    ANSWERS,
    EXCHANGES,
    OTHER,
    REFERRED,
    BothWays,
    chunks_in,
    log_of,
    mesh_with_content,
    store_of,
)
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.memory_watch import MemoryWatch
from tests.journeys.several_nodes import NODES, SITE, SiteServers
from tests.journeys.supervised_mesh import isthmus
from tests.processes import frozen
from tests.waiting import until

MIB = 2**20


@pytest.mark.slow
async def test_one_body_in_three_exchanges_is_kept_once_and_arrives_three_times(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(7)
    catalogue, other = chance.randbytes(5 * MIB + 11), chance.randbytes(3 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            boxes = [await paris.listen(exchange) for exchange in EXCHANGES]
            back = await tokyo.listen(ANSWERS)
            for exchange in EXCHANGES:
                await tokyo.post(exchange, letter(catalogue, str(uuid.uuid4())), letter(b"small"))
            await paris.post(ANSWERS, letter(other, str(uuid.uuid4())), letter(b"little"))
            for box in boxes:
                assert [m.body for m in await box.has(2)] == [catalogue, b"small"]
            assert [m.body for m in await back.has(2)] == [other, b"little"]
        in_log = sum(len(record.data) for record in await log_of(mesh, SITE))
        assert in_log < (3 * len(catalogue) + len(other)) / 100
        async with store_of(mesh) as session:
            lives = await asyncio.to_thread(chunks_in, session)
        pieces = {content_id for content_id, _ in lives}
        assert len(pieces) == 7 + 4
        kept_s = mesh.mesh.retention_s + MARGIN_S
        assert kept_s - 600 < min(lives.values()) <= max(lives.values()) <= kept_s


@pytest.mark.slow
async def test_a_node_that_dies_between_content_and_append_is_replaced_and_loses_nothing(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    body = random.Random(3).randbytes(4 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        runs = await mesh.node_that_runs(SITE)
        (other,) = set(NODES) - {runs}
        mesh.stop(f"{SITE}/{other}")
        once = tmp_path / "once"
        mesh.environment = {crash_points.VARIABLE: f"content.stored:2:{once}"}
        mesh.start_node(SITE, other)
        mesh.environment = {}
        await mesh.until_told(
            lambda told: told["sites"][SITE]["nodes"].get(other, {}).get("state") == "standby",
            f"{other} stands by",
        )
        mesh.stop(f"{SITE}/{runs}")
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            box = await paris.listen("orders")
            await tokyo.post("orders", letter(body, str(uuid.uuid4())), letter(b"small"))
            assert await mesh.dies(f"{SITE}/{other}") == -signal.SIGKILL
            assert once.exists()
            mesh.start_node(SITE, runs)
            assert [m.body for m in await box.has(2)] == [body, b"small"]


@pytest.mark.slow
async def test_a_content_that_is_gone_is_a_gap_and_the_rest_goes_on_once_it_is_accepted(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(4)
    lost, kept = chance.randbytes(2 * MIB), chance.randbytes(3 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER) as (paris,):
            await paris.declare("kept", "orders", "#")
        mesh.stop(OTHER)
        async with at(mesh, SITE) as (tokyo,):
            for body in (b"before", lost, kept, b"behind"):
                await tokyo.post("orders", letter(body, str(uuid.uuid4())))
        await mesh.until_told(
            lambda told: told["sites"][SITE].get("content", {}).get("stored") == 7, "all is stored"
        )
        references = [ContentReference.decode(one.data) for one in await log_of(mesh, SITE)]
        gone = next(one for one in references if one is not None).content_id
        async with store_of(mesh) as session:
            await asyncio.to_thread(
                session.execute, "DELETE FROM content WHERE id = %s AND chunk = 1", [gone]
            )
        for node in NODES:
            mesh.kill(f"{SITE}/{node}")  # whose memory has it yet
            mesh.start_node(SITE, node)
        mesh.start([OTHER])
        link = await mesh.until_told(
            lambda told: next((one for one in told["links"] if "gap" in one["reason"]), None),
            "the link stops",
            within_s=120,
        )
        assert f"chunk 1 of content {gone.hex()} is gone" in link["reason"]
        code, said = await isthmus(mesh, "accept-gap", SITE, "--yes")
        assert code == 0, said
        async with at(mesh, OTHER) as (paris,):
            box = await paris.consume("kept")
            assert [m.body for m in await box.has(3)] == [b"before", kept, b"behind"]


@pytest.mark.slow
async def test_a_referenced_body_is_fetched_by_its_id(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    body = random.Random(5).randbytes(3 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            here, there = await tokyo.listen(REFERRED), await paris.listen(REFERRED)
            await paris.post(REFERRED, letter(body, str(uuid.uuid4())), letter(b"small"))
            large, small = await here.has(2)
            assert (large.body, small.body) == (b"", b"small")
            assert [m.body for m in await there.has(2)] == [body, b"small"]
        assert large.text_header(CONTENT_SHA256_HEADER) == sha256(body).hexdigest()
        assert large.header(CONTENT_BYTES_HEADER) == long_integer(len(body))
        content_id = large.text_header(CONTENT_ID_HEADER)
        assert content_id is not None
        file = tmp_path / "body"
        words = ("get", str(mesh.file), content_id, "--site", SITE, "--json", "-o", str(file))
        code, said = await isthmus_content(mesh, *words)
        assert code == 0, said
        assert json.loads(said) == {
            "id": content_id,
            "bytes": len(body),
            "sha256": sha256(body).hexdigest(),
            "output": str(file),
        }
        assert file.read_bytes() == body
        code, said = await isthmus_content(mesh, "get", str(mesh.file), "0" * 64, "--site", SITE)
        assert code == 1
        assert "the store has no such content" in said


@pytest.mark.slow
async def test_a_reference_waits_while_cassandra_is_away_and_comes_once_it_is_back(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    body = random.Random(6).randbytes(2 * MIB)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            here, small = await tokyo.listen(REFERRED), await tokyo.listen(ANSWERS)
            code, said = await isthmus(mesh, "pause", "--site", SITE)
            assert code == 0, said
            await paris.post(REFERRED, letter(body, str(uuid.uuid4())))
            await paris.post(ANSWERS, letter(b"small", str(uuid.uuid4())))
            # Pieces and small message are in the log: the delivery alone is to come.
            standing = f"{mesh.cluster(OTHER)}/{REFERRED}", f"{mesh.cluster(OTHER)}/{ANSWERS}"
            await mesh.until_told(
                lambda told: all(
                    "paused" in told["sites"][SITE]["standing_flows"].get(flow, "")
                    for flow in standing
                ),
                "both flows are paused",
            )
            with frozen(*servers.cassandra):
                code, said = await isthmus(mesh, "resume", "--site", SITE)
                assert code == 0, said
                await mesh.until_told(
                    lambda told: (
                        standing[1] not in told["sites"][SITE]["standing_flows"]
                        and "content" in told["sites"][SITE]["standing_flows"].get(standing[0], "")
                        and any(
                            (one["journal_away_s"] or 0) > 3
                            for node in told["sites"][SITE]["nodes"].values()
                            for one in node["held"]
                        )
                    ),
                    "delivery goes on, and Cassandra is missed",
                )
                _, said = await isthmus(mesh, "status")
                assert "no Cassandra for" in " ".join(said.split()), said
                assert (here.got, small.got) == ([], [])
            assert [m.body for m in await small.has(1)] == [b"small"]
            (message,) = await here.has(1)
            assert (message.body, message.flagged) == (b"", False)
            assert message.text_header(CONTENT_SHA256_HEADER) == sha256(body).hexdigest()


@pytest.mark.long
async def test_a_hundred_large_messages_arrive_whole_and_in_order_though_nodes_are_killed(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    chance = random.Random(11)
    sizes = [50 if n % 3 == 2 else chance.randint(MIB, 15 * MIB) for n in range(150)]
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as sites:
            ways = BothWays(chance, sites)
            await ways.listen()
            for begin in range(0, len(sizes), 30):
                await ways.post(*sizes[begin : begin + 30])
                runs = await mesh.node_that_runs(SITE)
                mesh.kill(f"{SITE}/{runs}")
                mesh.start_node(SITE, runs)
            await ways.arrive(mesh, 400)


@pytest.mark.long
async def test_large_messages_arrive_while_one_copy_of_the_store_is_lost_and_then_another(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    large = 4 * MIB
    async with SiteServers.started(tmp_path, 3) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as sites:
            ways = BothWays(random.Random(13), sites)
            await ways.listen()
            passing = asyncio.create_task(ways.post(*[large] * 8, 50, 50))
            await until(lambda: ways.arrived >= 2, mesh.logs, 60)
            await servers.kill_cassandra(1)
            assert ways.arrived < 10, "large bodies are on their way"
            await passing
            await ways.arrive(mesh)
            # What the copy that was away lacks is all that a node has to read later.
            assert mesh.stop(OTHER) == 0
            await ways.post(large, 50, large, large, way=0)
            stored = -(-large // PIECE_BYTES)
            await mesh.until_told(
                lambda told: told["sites"][SITE]["content"]["stored"] >= 11 * stored, "all stored"
            )
            await servers.start_cassandra(1)
            await servers.kill_cassandra(2)
            runs = await mesh.node_that_runs(SITE)
            mesh.kill(f"{SITE}/{runs}")  # whose memory has the end of the log
            mesh.start_node(SITE, runs)
            mesh.start([OTHER])
            await ways.arrive(mesh)
            runs = await mesh.node_that_runs(SITE)
            content = (await mesh.status())["sites"][SITE]["content"]
            assert content["taken"] >= 3 * stored, content
            await ways.post(*[large] * 4, 50, 50)
            await ways.arrive(mesh)


@pytest.mark.long
async def test_large_messages_take_little_of_the_log_and_of_a_nodes_memory(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    body = random.Random(12).randbytes(15 * MIB - 10)
    async with SiteServers.started(tmp_path, 1) as servers:
        mesh = await mesh_with_content(live_mesh, servers)
        async with at(mesh, OTHER, SITE) as (paris, tokyo):
            boxes = [await paris.listen("orders"), await tokyo.listen(ANSWERS)]
            async with MemoryWatch(mesh) as watch:
                ways = ((tokyo, "orders"), (paris, ANSWERS))
                for (site, exchange), box in zip(ways, boxes, strict=True):
                    for n in range(50):
                        await site.post(exchange, letter(b"%9d" % n + body, str(uuid.uuid4())))
                        await box.has(n + 1)
                        box.got[n] = replace(box.got[n], body=b"")
            in_log = sum(len(record.data) for record in await log_of(mesh, SITE))
        assert in_log < len(body), "a hundredth of what has passed"
        # Some 112 before the first message, and 147 at most on a machine left alone.
        assert max(watch.most_mb[f"{SITE}/{node}"] for node in NODES) < 165


async def isthmus_content(mesh: LiveMesh, *words: str) -> tuple[int, str]:
    """Run `isthmus content WORDS`; its exit status, and all that it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", "content", *words, "--state", str(mesh.state)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()
