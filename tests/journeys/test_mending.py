"""An operator looks at what was put aside at a site, has it sent again, and gives it up."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from isthmus.status import status_of
from relay.ledger.rows import OUTCOME_MASK, Outcome
from tests.journeys.application import Letter, at, letter
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, counted, running_mesh
from tests.live_brokers import BrokerPool
from tests.waiting import until

PAIR = ("paris", "tokyo")
pytestmark = SHARED
FULL = {"x_max_length": 1, "x_overflow": "reject-publish"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    async with running_mesh(
        broker_pool,
        tmp_path_factory.mktemp("mending"),
        *PAIR,
        topology="complete",
        exchanges=[{"name": "hasty", "retry": {"max_attempts": 1, "backoff": ["0.05s", "0.1s"]}}],
    ) as mesh:
        yield mesh


async def command(mesh: LiveMesh, *words: str, fails: bool = False) -> dict[str, Any]:
    """What `isthmus WORD WORD FILE WORDS... --site tokyo --json` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "isthmus", *words[:2], str(mesh.file), *words[2:]),
        *("--site", "tokyo", "--state", str(mesh.state), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == int(fails), (out, err)
    told: dict[str, Any] = json.loads(out)
    return told


def outcomes(told: dict[str, Any]) -> list[str]:
    return [result["outcome"] for result in told["results"]]


async def dead_letters(mesh: LiveMesh) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await command(mesh, "dead-letters", "list"))["sites"][
        "tokyo"
    ]["messages"]
    return messages


async def waiting_at_tokyo(mesh: LiveMesh, count: int) -> None:
    """Until its node says that so many dead letters wait, whatever was counted since its start."""

    async def says_so() -> bool:
        told = (await status_of(mesh.mesh, mesh.state)).content["sites"]["tokyo"]
        return bool(told["dead_letters_waiting"] == count)

    await until(says_so, f"{count} dead letters wait", 10)


async def test_dead_letters_are_sent_again_once_with_their_history_or_given_up_in_the_ledger(
    pair: LiveMesh,
) -> None:
    async with at(pair, *PAIR) as (paris, tokyo):
        await tokyo.declare("full", "hasty", "#", **FULL)
        sent: list[Letter] = [
            letter(f"letter {n}".encode(), str(uuid.uuid4()), key=b"k.%d" % n, why=b"as sent")
            for n in range(4)
        ]
        async with counted(pair, "tokyo", dead_lettered=3, delivered=1):
            await paris.post("hasty", *sent)
        await waiting_at_tokyo(pair, 3)
        first, second, _ = listed = await dead_letters(pair)
        assert [one["routing_key"] for one in listed] == ["k.1", "k.2", "k.3"]
        assert {one["reason"] for one in listed} == {"a queue refused it (full, reject-publish)"}
        assert [one["path"] for one in listed] == [["paris", "tokyo"]] * 3

        refused = await command(pair, "dead-letters", "retry", "--all", fails=True)
        assert outcomes(refused) == ["kept"] * 3
        assert {result["said"] for result in refused["results"]} == {first["reason"]}
        assert await dead_letters(pair) == listed, "in their order, whatever was tried"

        full = await tokyo.consume("full")  # there is room from now on
        await full.has(1)
        async with counted(pair, "tokyo", retried=1, delivered=0):
            again = await command(pair, "dead-letters", "retry", first["id"])
        assert outcomes(again) == ["delivered"]
        _, delivered = await full.has(2)
        assert (delivered.body, delivered.key) == (b"letter 1", b"k.1")
        assert delivered.as_sent == sent[1].properties
        assert delivered.flagged
        assert delivered.text_header(b"x-mesh-dead-reason") == first["reason"]
        assert delivered.text_header(b"x-mesh-dead-attempts") == "1"
        assert delivered.path == PAIR
        gone = await command(pair, "dead-letters", "retry", first["id"], fails=True)
        assert gone == {"results": [], "missing": [first["id"]]}

        # What comes by another way meanwhile is delivered, and then not a second time.
        await paris.post("hasty", sent[2])
        assert (await full.has(3))[-1].body == b"letter 2"
        known = await command(pair, "dead-letters", "retry", second["id"])
        assert outcomes(known) == ["duplicate"]
        # And a later copy of what was sent again is known to the barrier.
        async with counted(pair, "tokyo", duplicates=1, delivered=0):
            await paris.post("hasty", sent[1])

        async with counted(pair, "tokyo", dropped=1):
            assert outcomes(await command(pair, "dead-letters", "drop", "--all")) == ["dropped"]
        assert await dead_letters(pair) == []
        await waiting_at_tokyo(pair, 0)
        await full.has(3)


async def test_what_is_no_message_of_the_mesh_can_only_be_looked_at_exported_and_dropped(
    pair: LiveMesh,
) -> None:
    async with at(pair, "tokyo", as_operator=True) as (operator,):
        queue = f"isthmus.{pair.mesh.name}.quarantine"
        await operator.post("", letter(b"somebody's", key=queue.encode(), x_mesh_batch=b"?"))
        (one,) = (await command(pair, "quarantine", "list"))["sites"]["tokyo"]["messages"]
        assert one["reason"] == "not put here by the mesh"
        (result,) = (await command(pair, "quarantine", "retry", one["id"], fails=True))["results"]
        assert result["outcome"] == "kept"
        assert "export it, or drop it" in result["said"]
        shown = await command(pair, "quarantine", "show", one["id"])
        assert shown["body_base64"] == "c29tZWJvZHkncw=="
        assert outcomes(await command(pair, "quarantine", "drop", one["id"])) == ["dropped"]
        assert (await command(pair, "quarantine", "list"))["sites"]["tokyo"]["total"] == 0


async def test_nobody_without_the_processs_token_sees_a_message(pair: LiveMesh) -> None:
    folder = pair.state / "sites" / "tokyo"
    port = json.loads((folder / "node.json").read_text())["admin_port"]
    assert (folder / "admin.token").stat().st_mode & 0o077 == 0
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        for token in ("", "Bearer ", "Bearer x", "Basic x"):
            headers = {"Authorization": token}
            async with client.get("/sites/tokyo/dead-letters", headers=headers) as answer:
                assert answer.status == 401
            async with client.post("/sites/tokyo/dead-letters/drop", headers=headers) as answer:
                assert answer.status == 401


async def test_the_ledger_has_what_operators_did(pair: LiveMesh) -> None:
    assert pair.stop("tokyo") == 0
    rows = pair.ledger("tokyo", "delivered")
    done = [
        (row["event"], [Outcome(one & OUTCOME_MASK) for one in row["outcomes"] or b""])
        for row in rows
        if row["event"] in ("retried", "dropped")
    ]
    assert done == [
        ("retried", [Outcome.DELIVERED]),
        ("retried", [Outcome.DUPLICATE]),
        ("dropped", [Outcome.DEAD]),
        ("dropped", []),
    ]
    row = next(row for row in rows if row["event"] == "dropped")
    assert (row["origin"], row["exchange"], row["count"]) == ("paris", "hasty", 1)
