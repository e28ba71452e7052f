"""What real nodes write down is proven by the audit, whatever happened to them."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from spark_audit.job import Audit
from spark_audit.period import Period
from spark_audit.report.report import AuditReport, AuditVerdict
from tests.journeys.conftest import LoadedMeshFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus
from tests.waiting import until

pytestmark = pytest.mark.spark

BIG = 2_000_000
"""Bytes of a body that travels in pieces."""


def now_ms() -> int:
    return round(time.time() * 1000)


def audited(spark: Any, mesh: LiveMesh, period: Period) -> AuditReport:
    return Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()


async def test_what_a_mesh_relayed_is_proven(spark: Any, live_mesh: MeshFactory) -> None:
    mesh = await live_mesh("paris", "tokyo", "lima", topology="ring")
    begin = now_ms()
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    await mesh.publish_everywhere(1000)
    await mesh.arrived()
    await mesh.publish_everywhere(2, size=BIG)
    await mesh.arrived()
    mesh.kill("tokyo")
    await mesh.publish_everywhere(300)
    mesh.start(["tokyo"])
    await mesh.running()
    await mesh.publish_everywhere(300)
    await mesh.arrived()
    period = Period(begin, now_ms() + 1)
    for site in ("paris", "tokyo", "lima"):
        assert mesh.stop(site) == 0
    report = audited(spark, mesh, period)
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    assert report.totals["delivered"] == 3 * 2 * 1602


async def test_nodes_killed_at_any_moment_and_the_exporter_in_mid_file_leave_whole_books(
    spark: Any, loaded_mesh: LoadedMeshFactory
) -> None:
    sites = ("paris", "tokyo", "lima")
    begin = now_ms()
    mesh, load = await loaded_mesh(*sites, topology="ring")
    chance = random.Random(4)
    for victim in ("tokyo", "paris", "lima"):
        await load.more(chance.randrange(300, 900))
        mesh.kill(victim)
        await load.more(chance.randrange(0, 300))
        mesh.start([victim])
        await mesh.running()
    half = await killed_in_mid_file(mesh, "tokyo")
    mesh.start(["tokyo"])
    await mesh.running()
    await load.more(300)
    await load.end()
    await load.arrived()
    load.check(lambda site, origin: 10_000)
    flagged = sum(one.flagged for sink in load.sinks.values() for one in sink.from_others())
    period = Period(begin, now_ms() + 1)
    for site in sites:
        assert mesh.stop(site) == 0
    assert half.exists()  # what was killed in the middle has no name of a ledger file
    report = audited(spark, mesh, period)
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    # A row says what was flagged; one that a kill cut off may have gone out once more than it says.
    assert report.totals["redelivered"] <= flagged
    assert bool(report.totals["redelivered"]) == bool(flagged)


async def killed_in_mid_file(mesh: LiveMesh, site: str) -> Path:
    """The node and the process that writes its ledger's files, while it writes one, whose remains
    are told.
    """
    folder = mesh.state / "sites" / site / "ledger"

    def half_written() -> Path | None:
        return next(folder.glob("date=*/.*.parquet.*.tmp"), None)

    for _ in range(20):
        process = mesh.processes[site]
        process.send_signal(signal.SIGTERM)  # it exports all that there is
        await until(
            lambda process=process: half_written() or process.poll() is not None,
            "a file is being written, or all are",
            60,
            every_s=0.0005,
        )
        if (file := half_written()) is not None:
            try:
                os.kill(int(file.name.split(".")[-2]), signal.SIGKILL)
            except ProcessLookupError:
                continue
            mesh.kill(site)
            if file.exists():
                return file
        else:
            assert mesh.stop(site) == 0
        mesh.start([site])
        await mesh.running()
    raise AssertionError("no file was ever seen half written")


@pytest.mark.parametrize("begins", [pytest.param("now", marks=pytest.mark.long), "start"])
async def test_a_mesh_that_changes_in_the_day_has_no_false_finding(
    spark: Any, loaded_mesh: LoadedMeshFactory, begins: str
) -> None:
    three: dict[str, Any] = {site: {} for site in ("paris", "tokyo", "lima")}
    begin = now_ms()
    mesh, load = await loaded_mesh(
        *three,
        "oslo",
        topology="ring",
        both=True,
        sites=dict(three),
        exchanges=[{"name": "orders"}, {"name": "prices"}],
    )
    load.per_second = 30
    await load.more(300)

    mesh.document["sites"] = {**three, "oslo": {"from": begins}}
    await mesh.prepare()
    await load.take_part("oslo")
    mesh.start(["oslo"])
    await mesh.running()
    await load.more(300)

    narrow = {"name": "prices", "to": ["tokyo", "paris"], "deadline": "1h"}
    await mesh.change(exchanges=[{"name": "orders"}, narrow, {"name": "stock"}])
    await load.take_part(exchange="stock")
    await load.more(300)

    await load.leave("oslo")
    code, said = await isthmus(mesh, "drain", "oslo")
    assert code == 0, said
    left = [load.sinks.pop(key) for key in list(load.sinks) if key[0] == "oslo"]
    gone = mesh.processes.pop("oslo")
    await mesh.change(sites=dict(three))
    assert gone.wait(15) == 3
    await load.more(300)
    await load.end()
    del load.sinks["lima", "prices"]  # of which it gets no more
    await load.arrived()
    period = Period(begin, now_ms() + 1)
    for site in three:
        assert mesh.stop(site) == 0
    for sink in left:
        await sink.close()
    report = audited(spark, mesh, period)
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    arrived = {pair: sum(counts.values()) for pair, counts in report.pairs.items()}
    assert arrived["paris", "oslo"] < arrived["paris", "tokyo"]
    assert arrived["paris", "lima"] < arrived["paris", "tokyo"]
