"""Messages are lost; the audit names them, the repair brings them, the next audit is green."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
import uuid
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aio_pika
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from isthmus.demo import LOSS_HEADER, LOSSY_NODES, Loss
from relay.ledger.rows import OUTCOME_MASK, REPAIRED, Outcome
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.waiting import until


def moment(ms: float) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


BIG = 1_500_000
"""Bytes of a body that travels in pieces."""
ALONE = 150_000
"""Bytes of a body; two of them are no batch, so that a repair sends one after the other."""
PAD = b"."


async def publish_alone(uri: str, body: str, loss: str = "") -> None:
    """Publish a message so big that no other one fits into its batch; `loss`: see `Loss.at`."""
    async with await aio_pika.connect(uri) as connection:
        channel = await connection.channel()
        orders = await channel.get_exchange("orders", ensure=False)
        headers: Any = {LOSS_HEADER: loss} if loss else {}
        await orders.publish(
            aio_pika.Message(
                body.encode().ljust(ALONE, PAD), message_id=str(uuid.uuid4()), headers=headers
            ),
            "key",
        )


class Losing:
    """A mesh whose nodes lose what asks for it, and an application at each site."""

    def __init__(self, mesh: LiveMesh) -> None:
        self.mesh = mesh
        self.got: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self.begin_ms = time.time() * 1000
        self._connections: list[Any] = []

    async def listen(self) -> None:
        for site in self.mesh.mesh.sites:
            self.got[site] = []
            connection = await aio_pika.connect_robust(self.mesh.uri(site))
            self._connections.append(connection)
            channel = await connection.channel()
            queue = await channel.declare_queue("repair.test", durable=True)
            await queue.bind("orders", "#")
            await queue.consume(self._take(site), no_ack=True)

    def _take(self, site: str) -> Any:
        async def take(message: Any) -> None:
            body = message.body.rstrip(PAD) if len(message.body) < BIG else b"big"
            self.got[site].append((body.decode(), dict(message.headers)))

        return take

    async def publish(self, site: str, body: str, loss: str = "") -> None:
        await publish_alone(self.mesh.uri(site), body, loss)

    def bodies(self, site: str) -> list[str]:
        return sorted(body for body, _ in self.got[site])

    async def have(self, **counts: int) -> None:
        await until(
            lambda: all(len(self.got[site]) == count for site, count in counts.items()),
            lambda: f"{counts} messages; { ({s: self.bodies(s) for s in self.got}) }",
            60,
        )

    async def told(self) -> None:
        """All nodes have written down what they did."""
        from isthmus.repair import RepairWork

        assert await RepairWork(self.mesh.mesh, self.mesh.state, []).write_ledgers() == {}

    async def command(self, *words: str) -> tuple[int, dict[str, Any], str]:
        return await self.ended(await self.begun(*words))

    async def begun(self, *words: str) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", words[0], str(self.mesh.file), *words[1:]),
            *("--state", str(self.mesh.state), "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ended(self, process: Process) -> tuple[int, dict[str, Any], str]:
        """Its exit status, what it told, and its standard error."""
        out, error = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(out or b"{}"), error.decode()

    async def audit(self, out: Path) -> tuple[int, dict[str, Any]]:
        await self.told()
        status, told, error = await self.command(
            *("audit", "--from", moment(self.begin_ms), "--to", moment(self.end_ms)),
            *("--out", str(out)),
        )
        assert told, error
        return status, told

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()


@asynccontextmanager
async def losing(live_mesh: MeshFactory, *sites: str) -> AsyncIterator[Losing]:
    """All of them linked with each other, running, and listened to."""
    mesh = await live_mesh(*sites, topology="complete")
    mesh.program = LOSSY_NODES
    world = Losing(mesh)
    try:
        await world.listen()
        mesh.start_each()
        await mesh.running()
        yield world
    finally:
        await world.close()


@pytest.mark.spark
@pytest.mark.long  # as make demo does, which is in CI
async def test_three_losses_are_named_and_repaired(live_mesh: MeshFactory, tmp_path: Path) -> None:
    async with losing(live_mesh, "paris", "tokyo", "lima") as world:
        mesh = world.mesh
        await world.publish("paris", "before", Loss.BEFORE.at("tokyo"))
        await world.publish("paris", "after", Loss.AFTER.at("tokyo"))
        await world.publish("paris", "link", Loss.LINK.at("lima"))
        await world.publish("paris", "fine")
        await world.have(paris=4, tokyo=2, lima=3)
        world.end_ms = time.time() * 1000 + 1

        status, told = await world.audit(tmp_path / "audit")
        assert (status, told["findings"]) == (1, {"lost": 3}), told
        assert told["why_not_proven"] == []
        shutil.copytree(tmp_path / "audit", tmp_path / "again")

        status, told, error = await world.command(
            "repair", "--audit", str(tmp_path / "audit"), "--dry-run"
        )
        assert (status, told["sent"], error) == (0, {"paris": 3}, "")
        assert world.bodies("tokyo") == ["fine", "link"]

        status, told, error = await world.command("repair", "--audit", str(tmp_path / "audit"))
        assert status == 0, (told, error, mesh.logs())
        assert (told["lost"], told["sent"], told["problems"]) == (3, {"paris": 3}, {})
        assert (told["after"]["verdict"], told["after"]["findings"]) == ("proven", {}), told
        assert told["after"]["totals"] == {"delivered": 8, "repaired": 3}
        await world.have(paris=4, tokyo=4, lima=4)
        for site in ("tokyo", "lima"):
            assert world.bodies(site) == ["after", "before", "fine", "link"]
            assert {body: headers.get("x-mesh-repaired") for body, headers in world.got[site]} == {
                "fine": None,
                "link": "paris" if site == "lima" else None,
                "before": "paris" if site == "tokyo" else None,
                "after": "paris" if site == "tokyo" else None,
            }

        # Done twice, by who has not seen that it was done: the barriers suppress all of it.
        status, told, error = await world.command(
            "repair", "--audit", str(tmp_path / "again"), "--rate", "1/s"
        )
        assert (status, told["sent"]) == (0, {"paris": 3}), (told, error)
        assert told["after"]["verdict"] == "proven", told
        assert told["after"]["totals"] == {"delivered": 8, "repaired": 3, "suppressed": 3}
        for site in mesh.mesh.sites:
            assert len(world.got[site]) == 4
            assert mesh.stop(site) == 0
    outcomes = [
        (site, Outcome(outcome & OUTCOME_MASK), bool(outcome & REPAIRED))
        for site in ("tokyo", "lima")
        for row in mesh.ledger(site, "delivered")
        if row["kind"] == "repair"
        for outcome in row["outcomes"]
    ]
    assert outcomes == [
        *[("tokyo", Outcome.DELIVERED, True)] * 2,
        *[("tokyo", Outcome.DUPLICATE, True)] * 2,
        ("lima", Outcome.DELIVERED, True),
        ("lima", Outcome.DUPLICATE, True),
    ]


def calls_all_lost(mesh: LiveMesh, folder: Path, origin: str, *destinations: str) -> Path:
    """An audit's folder that says that these sites had nothing of what the origin has packed."""
    packed = [row for row in mesh.ledger(origin, "packed") if row["kind"] in PACKED]
    findings = [
        {
            "kind": "lost",
            "identity": row["identities"][16 * entry : 16 * entry + 16].hex(),
            "destination": mesh.cluster(site),
            "published": row["first_published"],
            "batch": f"{row['origin']}/{row['incarnation'].hex()}/{row['exchange']}.{row['lane']}"
            f">{','.join(row['destinations']) or '*'}/{row['sequence']}",
            "entry": entry,
        }
        for row in packed
        if not row["fragment"]
        for entry in range(row["count"])
        for site in destinations
    ]
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(findings), folder / "findings.parquet")
    report = {"mesh": mesh.mesh.name, "from": "", "to": "", "ledger": "", "level": "exact"}
    report |= {"verdict": "findings", "findings": {"lost": len(findings)}, "totals": {}}
    (folder / "report.json").write_text(json.dumps(report))
    return folder


PACKED = ("messages", "fragment")


@pytest.mark.slow
async def test_others_repair_while_the_origin_is_away_and_nothing_comes_twice(
    live_mesh: MeshFactory, tmp_path: Path
) -> None:
    count = 301
    async with losing(live_mesh, "paris", "tokyo", "lima") as world:
        mesh = world.mesh
        await mesh.source("paris").publish(count - 1)
        await mesh.source("paris").publish(1, size=BIG)
        await world.have(paris=count, tokyo=count, lima=count)
        await world.publish("paris", "before", Loss.BEFORE.at("tokyo"))
        await world.publish("paris", "after", Loss.AFTER.at("tokyo"))
        await world.publish("paris", "link", Loss.LINK.at("tokyo"))
        await world.publish("paris", "fine")
        await world.have(tokyo=count + 1, lima=count + 4)
        await world.told()
        mesh.kill("paris")
        audit = calls_all_lost(mesh, tmp_path / "audit", "paris", "tokyo", "lima")

        status, told, error = await world.command("repair", "--audit", str(audit), "--no-audit")
        assert status == 0, (told, error, mesh.logs())
        assert told["lost"] == 2 * (count + 4)
        # What tokyo never had, lima alone can send: to tokyo and, since it was asked to, itself.
        assert told["sent"] == {"lima": count + 4 + 1, "tokyo": count + 3}
        assert list(told["problems"]) == ["paris"]
        await world.have(tokyo=count + 4, lima=count + 4)

        status, told, error = await world.command("repair", "--audit", str(audit), "--no-audit")
        assert (status, sum(told["sent"].values())) == (0, 2 * (count + 4)), (told, error)
        assert mesh.stop("tokyo") == mesh.stop("lima") == 0
        await world.have(tokyo=count + 4, lima=count + 4)
    repaired = {
        body: (headers["x-mesh-repaired"], headers["x-mesh-path"])
        for body, headers in world.got["tokyo"]
        if "x-mesh-repaired" in headers
    }
    way = ("paris", "paris,lima,tokyo")
    assert repaired == {"before": way, "after": way, "link": way}
    assert not any("x-mesh-redelivered" in headers for _, headers in world.got["tokyo"])
    assert not any("x-mesh-repaired" in headers for _, headers in world.got["lima"])


FINE = {f"fine {n}" for n in range(4)}
LOST = {f"lost {n}" for n in range(12)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "victim", ["sender", pytest.param("receiver", marks=pytest.mark.long), "command"]
)
async def test_a_repair_killed_half_way_and_done_again_brings_everything_once(
    live_mesh: MeshFactory, tmp_path: Path, victim: str
) -> None:
    async with losing(live_mesh, "paris", "tokyo") as world:
        mesh = world.mesh
        # Lost at the link: nobody but paris has them.
        for body in sorted(FINE | LOST):
            loss = Loss.LINK.at("tokyo") if body in LOST else ""
            await world.publish("paris", body, loss)
        await world.have(paris=len(FINE | LOST), tokyo=len(FINE))
        await world.told()
        audit = calls_all_lost(mesh, tmp_path / "audit", "paris", "tokyo")

        repair = ("repair", "--audit", str(audit), "--no-audit")
        half_done = await world.begun(*repair, "--rate", "2/s")
        await until(
            lambda: len(world.got["tokyo"]) >= len(FINE) + len(LOST) // 3,
            lambda: f"a third of it; {world.bodies('tokyo')}\n{mesh.logs()}",
            60,
        )
        if victim == "command":
            half_done.kill()
        else:
            mesh.kill("paris" if victim == "sender" else "tokyo")
        assert len(world.got["tokyo"]) < len(FINE | LOST), "not half way, but at its end"
        status, told, error = await world.ended(half_done)
        if victim == "sender":
            assert (status, list(told["problems"])) == (2, ["paris"]), (told, error)
            assert 0 < len(told["not_asked"]) < len(FINE | LOST)
            assert told["irrecoverable"] == []
            mesh.start(["paris"])
        elif victim == "receiver":
            # It waits in the log of paris, and comes by itself.
            assert (status, list(told["problems"])) == (2, ["tokyo"]), (told, error)
            assert told["sent"] == {"paris": len(FINE | LOST)}
            mesh.start(["tokyo"])
        await mesh.running()

        status, told, error = await world.command(*repair)
        assert (status, told["sent"]) == (0, {"paris": len(FINE | LOST)}), (told, error)
        assert mesh.stop("paris") == mesh.stop("tokyo") == 0
        await until(
            lambda: set(world.bodies("tokyo")) == FINE | LOST,
            lambda: f"all of it; {world.bodies('tokyo')}\n{mesh.logs()}",
            60,
        )
    firsts = Counter(body for body, headers in world.got["tokyo"] if not doubtful(headers))
    assert max(firsts.values()) == 1, firsts
    if victim != "receiver":
        assert set(firsts) == FINE | LOST, "nothing was in doubt"
    repaired = {body for body, headers in world.got["tokyo"] if "x-mesh-repaired" in headers}
    assert repaired == LOST
    outcomes = Counter(
        outcome & OUTCOME_MASK
        for row in mesh.ledger("tokyo", "delivered")
        if row["kind"] == "repair"
        for outcome in row["outcomes"]
    )
    assert outcomes[Outcome.DELIVERED] == len(LOST)
    assert set(outcomes) == {Outcome.DELIVERED, Outcome.DUPLICATE}


def doubtful(headers: dict[str, Any]) -> bool:
    """Marked as one that may have come before."""
    return "x-mesh-redelivered" in headers
