"""A mesh in the middle of an upgrade: a node of the version before beside new ones, under load."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.names import Names
from isthmus.doctor.finding import Finding, Grade
from relay.batches.batch import BatchKind
from relay.log.rabbit.rabbit_log import open_rabbit_log
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.test_doctor import examined
from tests.log_batches import batch
from tests.waiting import until

SITES = ("paris", "tokyo", "lima")
OLDER = "tokyo"
STOPPED = 3


async def half_upgraded(live_mesh: MeshFactory, load: LoadFactory) -> tuple[LiveMesh, Load]:
    """A mesh under load of which one site runs the version before."""
    mesh = await live_mesh(*SITES, topology={"ring": {"both": True}})
    mesh.older = {OLDER}
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh)
    await traffic.start()
    await traffic.more(600)
    return mesh, traffic


@pytest.mark.slow
async def test_an_upgrade_site_by_site_and_a_roll_back_lose_nothing(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh, traffic = await half_upgraded(live_mesh, load)
    told = await mesh.status()
    assert reads(told) == {"paris": [1, 2], "tokyo": [1, 1], "lima": [1, 2]}
    assert {receiver: link_version(told, receiver) for receiver in ("tokyo", "lima")} == {
        "tokyo": 2,
        "lima": 3,
    }
    findings = await examined(mesh)
    assert not any("formats" in by_subject(findings, site) for site in SITES)

    await the_file_asks_for_too_much(mesh, traffic)
    await upgrade(mesh)
    assert link_version(await mesh.status(), OLDER) == 3
    await traffic.more(600)

    await a_roll_back_meets_what_it_cannot_read(mesh, traffic)
    await upgrade(mesh)
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived(within_s=180)
    traffic.check()
    await mesh.until_told(
        lambda told: all(
            (site["quarantine_waiting"], site["dead_letters_waiting"]) == (0, 0)
            for site in told["sites"].values()
        ),
        "nothing was put aside",
    )


@pytest.mark.long
async def test_a_node_in_whose_log_a_newer_one_writes_ends_in_order(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh, traffic = await half_upgraded(live_mesh, load)
    _, newer = batch(0, origin="lima", kind=BatchKind.MARK, format=2)
    names = Names(mesh.mesh.name)
    log = await open_rabbit_log(
        mesh.book.stream(OLDER), names.log, mark_name=names.deliverer_mark, name="a newer node"
    )
    node = mesh.processes.pop(OLDER)
    await log.append([newer])
    await log.close()
    assert await asyncio.to_thread(node.wait, 60) == STOPPED, mesh.logs()
    assert "batch format 2" in (await mesh.status())["sites"][OLDER]["reason"]
    await traffic.more(300)
    await upgrade(mesh)
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived()
    traffic.check()  # not even flagged: all that was in flight was answered before the end


async def the_file_asks_for_too_much(mesh: LiveMesh, traffic: Load) -> None:
    """Batches are to be of format 2 while one node reads only 1."""
    mesh.document["batch_format"] = 2
    mesh.write()

    def stands(told: dict[str, Any]) -> bool:
        into = [link for link in told["links"] if link["to"] == OLDER]
        why = told["sites"][OLDER].get("not_understood", {})
        return (
            all("upgrade the node of tokyo" in link["reason"] for link in into)
            and {link["state"] for link in into} == {"down"}
            and set(why) == {"paris", "lima"}
            and all("batch format 2" in one for one in why.values())
        )

    await mesh.until_told(stands, "both links into tokyo stand, and both ends say why")
    await mesh.until_told(
        lambda told: {site["state"] for site in told["sites"].values()} == {"running"},
        "all nodes run on",
    )

    async def doctor_says_so() -> bool:
        faults = by_subject(await examined(mesh), OLDER)
        return "nothing is taken from paris" in faults.get("formats", "")

    async def status_says_so() -> bool:
        code, said = await isthmus(mesh, "status")
        return code == 1 and "tokyo takes nothing from paris" in " ".join(said.split())

    # Each time a sender tries again, an older batch may just be taken, and the next one not.
    await until(doctor_says_so, "doctor says that nothing is taken", 60)
    await until(status_says_so, "status says that nothing is taken", 60)
    # What tokyo itself packs is of the format that it knows, and all others go on.
    before = {site: arrived_at(traffic, site) for site in SITES}
    await traffic.more(600)
    await until(
        lambda: all(arrived_at(traffic, s) >= before[s] + 200 for s in ("paris", "lima")),
        lambda: f"paris and lima go on\n{mesh.logs()}",
        60,
    )


async def a_roll_back_meets_what_it_cannot_read(mesh: LiveMesh, traffic: Load) -> None:
    """The version before is started over a log that has batches of format 2."""
    assert mesh.stop(OLDER) == 0
    mesh.older = {OLDER}
    mesh.start([OLDER])
    node = mesh.processes.pop(OLDER)
    assert await asyncio.to_thread(node.wait, 60) == STOPPED, mesh.logs()
    site = (await mesh.status())["sites"][OLDER]
    assert site["state"] == "stopped"
    assert "batch format 2, and this version of Isthmus reads only 1" in site["reason"]
    assert "start the version of Isthmus that ran here before" in site["reason"]
    assert "batch format 2" in by_subject(await examined(mesh), OLDER)["node"]
    # Again and again it says the same, and changes nothing.
    mesh.start([OLDER])
    node = mesh.processes.pop(OLDER)
    assert await asyncio.to_thread(node.wait, 60) == STOPPED, mesh.logs()
    await traffic.more(300)


async def upgrade(mesh: LiveMesh) -> None:
    if OLDER in mesh.processes:
        assert mesh.stop(OLDER) == 0
    mesh.older = set()
    mesh.start([OLDER])
    await mesh.running()
    assert (await mesh.status())["sites"][OLDER]["not_understood"] == {}


def reads(told: dict[str, Any]) -> dict[str, list[int]]:
    """By site, which formats of batches its node reads."""
    return {name: site["formats"]["batch"] for name, site in told["sites"].items()}


def link_version(told: dict[str, Any], receiver: str) -> int:
    """The newest that the receiver speaks, as it told paris."""
    (link,) = [k for k in told["links"] if (k["from"], k["to"]) == ("paris", receiver)]
    newest: int = link["receiver_formats"]["link"][1]
    return newest


def by_subject(findings: list[Finding], site: str) -> dict[str, str]:
    """What is a fault at the site."""
    faults: dict[str, str] = {}
    for one in findings:
        if one.grade is Grade.FAULT and one.site == site:
            faults.setdefault(one.subject, one.said)
    return faults


def arrived_at(traffic: Load, site: str) -> int:
    return len(traffic.sinks[site, "orders"].arrived)
