"""Sites that are cut into slots, beside sites of one, under load and kills, and in the audit."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from spark_audit.job import Audit
from spark_audit.period import Period
from spark_audit.report.report import AuditVerdict
from tests.journeys.application import at, letter
from tests.journeys.conftest import LoadedMeshFactory, MeshFactory
from tests.journeys.supervised_mesh import isthmus

SITES = ("paris", "tokyo", "lima")
pytestmark = pytest.mark.slow
CUT: dict[str, Any] = {
    "topology": "ring",
    "both": True,
    "exchanges": [{"name": "orders"}, {"name": "prices"}, {"name": "news", "mode": "split"}],
    "sites": {
        "paris": {"slots": 4, "place": {"orders": 0, "prices": 1, "news": 3}},
        "tokyo": {"slots": 2, "place": {"orders": 1}},
        "lima": {},
    },
}


def now_ms() -> int:
    return round(time.time() * 1000)


@pytest.mark.spark
async def test_slots_killed_under_load_lose_nothing_and_the_audit_proves_the_rest(
    spark: Any, loaded_mesh: LoadedMeshFactory
) -> None:
    begin = now_ms()
    mesh, traffic = await loaded_mesh(*SITES, **CUT)
    chance = random.Random(1)
    for victim in SITES:
        await traffic.more(chance.randrange(300, 900))
        mesh.kill(victim)
        await traffic.more(chance.randrange(0, 300))
        mesh.start([victim])
        await mesh.running()
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived()
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST)
    told = await mesh.status()
    packed = [slot["packed"] for slot in told["sites"]["paris"]["slots"]]
    assert [count > 0 for count in packed] == [True, True, False, True]
    period = Period(begin, now_ms() + 1)
    for site in SITES:
        assert mesh.stop(site) == 0
    report = Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)
    # A slot's ledger that is not there proves nothing.
    (mesh.state / "sites/paris/slots/3/ledger").rename(mesh.folder / "put-away")
    report = Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()
    assert report.verdict is AuditVerdict.NOT_PROVEN
    assert any("slot 3" in why for why in map(str, report.why_not_proven))


async def test_one_identity_published_at_two_sites_arrives_once_at_a_site_of_slots(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh(*SITES, **CUT)
    mesh.start_each()
    await mesh.running()
    async with at(mesh, *SITES) as (paris, tokyo, lima):
        arrived = await paris.listen("orders")
        for number in range(20):
            both = letter(b"both %d" % number, f"00000000-0000-4000-8000-{number:012}")
            await asyncio.gather(tokyo.post("orders", both), lima.post("orders", both))
        last = letter(b"last", "00000000-0000-4000-9000-000000000000")
        await tokyo.post("orders", last)
        await lima.post("orders", letter(b"last", "00000000-0000-4000-9000-000000000001"))
        bodies = [one.body for one in await arrived.has(22)]
    assert sorted(bodies) == sorted([b"both %d" % number for number in range(20)] + [b"last"] * 2)


async def test_other_slots_than_those_of_its_states_are_not_taken_up_and_not_started(
    live_mesh: MeshFactory,
) -> None:
    sites: dict[str, Any] = {"paris": {"slots": 2}, "tokyo": {}}
    mesh = await live_mesh(*sites, topology="complete", sites=sites)
    mesh.start_each()
    await mesh.running()
    mesh.document["sites"]["paris"]["slots"] = 4
    mesh.write()
    await mesh.until_told(
        lambda told: "into other slots" in told["sites"]["paris"]["file_problem"],
        "the running node refuses other slots",
    )
    assert mesh.stop("paris") == 0
    mesh.start(["paris"])
    assert await mesh.dies("paris") == 3
    assert "its states in" in mesh.logs()


async def test_a_slot_whose_state_is_lost_stops_its_site_and_is_rebuilt_alone(
    loaded_mesh: LoadedMeshFactory,
) -> None:
    mesh, traffic = await loaded_mesh(*SITES, **CUT)
    await traffic.more(500)
    assert mesh.stop("paris") == 0
    slot = mesh.state / "sites/paris/slots/1"
    shutil.rmtree(slot / "state")
    mesh.start(["paris"])
    assert await mesh.dies("paris") == 3
    told = (await mesh.status())["sites"]["paris"]
    assert told["state"] == "stopped"
    assert f"the state folder {slot / 'state'} is empty" in told["reason"]
    code, said = await isthmus(mesh, "recover", "--site", "paris")
    assert code == 2, said
    assert "paris has slots 0 to 3: say one of them by --slot" in said
    code, said = await isthmus(mesh, "recover", "--site", "paris", "--slot", "1")
    assert code == 0, said
    mesh.start(["paris"])
    await mesh.running()
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived()
    # Only of the slot's exchange, and what it had in hand, something may come twice.
    flags = traffic.check(lambda site, origin: 10_000 if "paris" in (site, origin) else 0)
    assert {exchange for (_, exchange), count in flags.items() if count} <= {"prices"}
