"""How `isthmus doctor` asks a broker whose statistics are some seconds old."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

from federation.brokers.management import ManagementApi
from federation.names import Names
from isthmus.doctor.broker import examine_broker
from isthmus.doctor.finding import Finding, Findings
from tests.federation.meshes import TRIANGLE, mesh_of
from tests.virtual_time import in_virtual_time

MESH = mesh_of(TRIANGLE)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LATE_S = 12.0


class Broker:
    """Its statistics know of the log's policy `knows_after_s` from now."""

    vhost = "/"

    def __init__(self, knows_after_s: float, version: str = "3.13.0") -> None:
        self._version = version
        self._knows_at = asyncio.get_running_loop().time() + knows_after_s

    async def date(self) -> datetime:
        return NOW

    async def get(self, what: str, vhost: str = "", *, columns: str = "") -> Any:
        if what == "overview":
            return {"rabbitmq_version": self._version}
        if what != "queues":
            return []
        knows = asyncio.get_running_loop().time() >= self._knows_at
        policy = {"max-age": "9999D"} if knows else {}
        return [{"name": Names(MESH.name).log, "effective_policy_definition": policy}]


async def examined(broker: Broker) -> tuple[dict[str, Finding], list[str]]:
    """What was found, by subject, and what was said meanwhile."""
    found, said = Findings("paris"), list[str]()
    believed_at = asyncio.get_running_loop().time() + LATE_S
    await examine_broker(
        cast(ManagementApi, broker), MESH, found, lambda: NOW, believed_at, said.append
    )
    return {one.subject: one for one in found.all}, said


@in_virtual_time
async def test_good_statistics_are_believed_at_once() -> None:
    found, said = await examined(Broker(0.0))
    assert found["retention"].said == "the log is kept for 9999D"
    assert said == []


@in_virtual_time
async def test_bad_statistics_are_asked_again_with_a_note() -> None:
    found, said = await examined(Broker(3.5))
    assert found["retention"].said == "the log is kept for 9999D"
    assert said[0] == "its statistics may be old: asking again for up to 12 s"
    assert said[-1] == "its statistics may be old: asking again for up to 9 s"


@in_virtual_time
async def test_lasting_faults_are_reported_after_the_wait() -> None:
    began = asyncio.get_running_loop().time()
    found, said = await examined(Broker(600.0))
    assert "no policy says how long the log is kept" in found["retention"].said
    assert LATE_S <= asyncio.get_running_loop().time() - began < LATE_S + 2
    assert len(said) == LATE_S


@in_virtual_time
async def test_a_release_that_orders_by_priority_is_told_with_the_exchanges_concerned() -> None:
    found, _ = await examined(Broker(0.0, "4.3.6"))
    assert "of orders (`priorities: order`" in found["priorities"].said
    found, _ = await examined(Broker(0.0))
    assert "priorities" not in found
