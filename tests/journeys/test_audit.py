"""What real nodes write down is proven by the audit, whatever happened to them."""

from __future__ import annotations

import time

import pytest

from spark_audit.job import Audit
from spark_audit.period import Period
from spark_audit.report import AuditReport, AuditVerdict
from spark_audit.session import spark_session
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh

pytestmark = pytest.mark.spark

BIG = 2_000_000
"""Bytes of a body that travels in pieces."""


def now_ms() -> int:
    return round(time.time() * 1000)


def audited(mesh: LiveMesh, period: Period) -> AuditReport:
    with spark_session("local[2]", is_small=True) as spark:
        return Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()


async def test_what_a_mesh_relayed_is_proven(live_mesh: MeshFactory) -> None:
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
    report = audited(mesh, period)
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    assert report.totals["delivered"] == 3 * 2 * 1602
