"""A mesh that changes while it runs, under load: no loss, no duplicate, no node begun anew."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from federation.brokers.addresses import read_private_brokers, write_private_brokers
from federation.brokers.management import ManagementApi
from federation.names import Names
from relay.operator.holds import was_drained
from relay.state.flow_state import ANNOUNCED_AT_MOST
from simulation.invariants import check_site
from tests.journeys.conftest import LoadedMeshFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load, home
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.traffic import TrafficSource
from tests.waiting import until

SITES = ("paris", "tokyo", "lima")


def pair(one: str, other: str) -> dict[str, Any]:
    return {"from": one, "to": other, "both": True}


def pids(told: dict[str, Any]) -> dict[str, int]:
    return {name: site["node_pid"] for name, site in told["sites"].items()}


@pytest.mark.slow
async def test_a_mesh_changes_part_by_part_under_load(loaded_mesh: LoadedMeshFactory) -> None:
    mesh, load = await loaded_mesh(*SITES, topology={"ring": {"both": True}})
    before = pids(await mesh.status())
    incarnations = {n: s["incarnations"] for n, s in (await mesh.status())["sites"].items()}
    await load.more(300)

    said = await mesh.change(
        topology="custom",
        links=[pair("tokyo", "lima"), pair("lima", "paris")],
    )
    assert "- link paris-tokyo" in said
    assert "- link tokyo-paris" in said
    await load.more(300)
    said = await mesh.change(links=[*mesh.document["links"], pair("paris", "tokyo")])
    assert "+ link paris-tokyo" in said
    await load.more(300)
    said = await mesh.change(topology="complete", links=[])
    assert "~ forwarding rule ring -> complete" in said
    await load.more(300)

    # None of this was the packers' business, nor is how long things are kept.
    assert "~ outage_window 3d -> 1d" in await mesh.change(outage_window="24h")
    assert await max_age(mesh, "tokyo") == f"{round(mesh.mesh.retention_s)}s"
    said = await mesh.change(exchanges=[{"name": "orders", "keys": ["order.*"]}])
    assert "~ exchange orders: keys # -> order.*" in said
    code, said = await isthmus(mesh, "apply")
    assert code == 0, said
    assert f"revision {mesh.mesh.revision}: as applied before" in said
    told = (await mesh.status())["sites"]
    assert {name: site["incarnations"] for name, site in told.items()} == incarnations
    unmatched = TrafficSource(mesh.uri("paris"), "elsewhere", key=b"other")
    await unmatched.publish(10)
    await load.more(300)

    said = await mesh.change(exchanges=[*mesh.document["exchanges"], {"name": "stock"}])
    assert "+ exchange stock" in said
    await load.take_part(exchange="stock")
    await load.more(300)

    await a_broken_file_changes_nothing(mesh, load)
    await another_address_is_taken_up_in_the_same_process(mesh, "tokyo")
    await load.more(300)

    await load.end()
    await load.arrived()
    at_home = load.sinks["paris", "orders"].seen["elsewhere"]
    assert len(at_home) == 10
    for sink in load.sinks.values():
        sink.arrived = [one for one in sink.arrived if one.origin != "elsewhere"]
        assert sink.site == "paris" or not sink.seen["elsewhere"]
    load.check()
    assert pids(await mesh.status()) == before


async def a_broken_file_changes_nothing(mesh: LiveMesh, load: Load) -> None:
    """It is said with its place."""
    revision, good = mesh.mesh.revision, mesh.file.read_text()
    mesh.file.write_text(good + "sitse: {}\n")
    mesh.kill("tokyo", signal.SIGHUP)
    line = len(good.splitlines()) + 1

    async def said() -> bool:
        mesh.file.write_text(good)  # for `status` to read
        told = await mesh.status()
        mesh.file.write_text(good + "sitse: {}\n")
        sites = told["sites"].values()
        return all(
            f"mesh.yaml:{line}:1: " in site.get("file_problem", "")  # one may not answer in time
            and site["revision"] == revision
            for site in sites
        )

    await until(said, lambda: f"said everywhere\n{mesh.logs()}", 30, every_s=3.0)
    await load.more(100)
    mesh.file.write_text(good)
    await mesh.until_told(
        lambda told: all(site.get("file_problem") == "" for site in told["sites"].values()),
        "mended",
    )


async def another_address_is_taken_up_in_the_same_process(mesh: LiveMesh, site: str) -> None:
    """A site's own broker is reached otherwise: all of its node's stages begin anew there."""
    assert (await mesh.status())["sites"][site]["incarnations"] > 1
    brokers = read_private_brokers(mesh.state)
    write_private_brokers(mesh.state, brokers | {site: replace(brokers[site], host="localhost")})
    await mesh.until_told(
        lambda told: told["sites"][site].get("incarnations") == 1, f"{site} began anew"
    )
    await mesh.running()


async def max_age(mesh: LiveMesh, site: str) -> str:
    """What the broker's policy says of the site's log."""
    address = mesh.book.management(site)
    assert address is not None
    async with ManagementApi(address) as api:
        (queue,) = [
            one
            for one in await api.get("policies", api.vhost)
            if one["name"] == Names(mesh.mesh.name).log_policy
        ]
    return str(queue["definition"]["max-age"])


@pytest.mark.slow
async def test_a_site_joins_is_held_drained_and_removed_under_load(
    loaded_mesh: LoadedMeshFactory,
) -> None:
    without: dict[str, Any] = {site: {} for site in SITES}
    mesh, load = await loaded_mesh(*SITES, "oslo", topology="ring", both=True, sites=dict(without))
    load.per_second = 30
    before = pids(await mesh.status())
    await load.more(300)

    # From the start: it gets what was published before it was there.
    mesh.document["sites"] = {**without, "oslo": {"from": "start"}}
    await mesh.prepare()
    await load.take_part("oslo")
    mesh.start(["oslo"])
    await mesh.running()
    await load.more(300)

    held = ("--site", "oslo", "--link", "tokyo-lima")
    code, said = await isthmus(mesh, "pause", *held)
    assert code == 0, said
    sink = load.sinks["oslo", "orders"]
    told = await mesh.until_told(lambda told: told if is_held(told) else None, "held")
    assert told["sites"]["oslo"]["state"] == "paused"

    async def done() -> tuple[int, int]:
        told = (await mesh.status())["sites"]["oslo"]
        return told["delivered"], told["packed"]

    async def stands_still() -> bool:
        so_far = await done()
        await load.more(100)
        return so_far == await done()

    # What was under way when it was held is delivered still.
    await until(stands_still, mesh.logs, 60)
    so_far = await done()
    await load.more(300)
    assert await done() == so_far
    mesh.kill("oslo")  # held over a restart, too
    mesh.start(["oslo"])
    await mesh.until_told(lambda told: told["sites"]["oslo"]["state"] == "paused", "held again")
    code, said = await isthmus(mesh, "resume", *held)
    assert code == 0, said
    await mesh.running()

    await load.leave("oslo")
    code, said = await isthmus(mesh, "drain", "oslo")
    assert code == 0, said
    assert "oslo is drained" in said
    assert was_drained(mesh.state / "sites" / "oslo")
    there = [one for one in sink.arrived if one.origin.split("/")[0] != "oslo"]
    del load.sinks["oslo", "orders"]
    gone = mesh.processes.pop("oslo")
    await mesh.change(sites=without)
    assert gone.wait(15) == 3
    await load.more(300)

    await load.end()
    await load.arrived()
    load.check()
    await sink.close()
    known = {stream.source.origin: stream.source.confirmed for stream in load.streams}
    arrived = {(one.origin, one.number) for one in there}
    check_site(
        "oslo",
        there,
        {
            origin: {n: body for n, body in bodies.items() if (origin, n) in arrived}
            for origin, bodies in known.items()
        },
        most_flags=0,
    )
    assert pids(await mesh.status()) == before


@pytest.mark.long
async def test_a_site_joins_from_now_under_load_and_gets_nothing_from_before(
    loaded_mesh: LoadedMeshFactory,
) -> None:
    without: dict[str, Any] = {site: {} for site in SITES}
    mesh, load = await loaded_mesh(*SITES, "oslo", topology="ring", both=True, sites=dict(without))
    load.per_second = 30
    before = pids(await mesh.status())
    await load.more(300)
    old = {stream.source.origin: set(stream.source.confirmed) for stream in load.streams}
    await until(  # nothing of it waits in an egress queue
        lambda: all(
            old[origin] <= sink.seen[origin]
            for (site, _), sink in load.sinks.items()
            for origin in old
            if home(origin) != mesh.cluster(site)
        ),
        mesh.logs,
        60,
    )

    # In the ring's middle, where it passes on what is not for it.
    former = mesh.mesh.revision
    mesh.document["sites"] = {"paris": {}, "oslo": {}, "tokyo": {}, "lima": {}}
    await mesh.prepare()
    await mesh.until_told(
        lambda told: (
            {told["sites"][site].get("revision") for site in SITES} == {mesh.mesh.revision}
        ),
        "all nodes have the new revision",
    )
    await load.declare()
    published = {stream.source.origin: max(stream.source.confirmed) for stream in load.streams}
    await load.more(300)  # before its first start

    sink = load.sinks.pop(("oslo", "orders"))
    sink.resume()
    mesh.start(["oslo"])
    await until(lambda: sink.arrived, mesh.logs, 60)
    mesh.kill("oslo")
    await load.more(100)
    mesh.start(["oslo"])
    await mesh.running()
    await load.more(300)
    await load.end()
    await load.arrived()
    load.check()

    sent = {stream.source.origin: stream.source.confirmed for stream in load.streams}
    await until(
        lambda: all(
            {n for n in bodies if n > published[origin]} <= sink.seen[origin]
            for origin, bodies in sent.items()
        ),
        mesh.logs,
        60,
    )
    first = {origin: min(numbers) for origin, numbers in sink.seen.items()}
    for origin in sent:
        assert max(old[origin]) < first[origin] <= published[origin] + 1
    check_site(
        "oslo",
        sink.arrived,
        {
            origin: {n: body for n, body in bodies.items() if n >= first[origin]}
            for origin, bodies in sent.items()
        },
        most_flags=ANNOUNCED_AT_MOST * len(SITES),  # it was killed
    )
    await sink.close()

    def lag(told: dict[str, Any]) -> int:
        return sum(link["lag_messages"] for link in told["links"])

    await mesh.until_told(lambda told: not lag(told), "no link lacks anything")
    told = await mesh.status()
    assert {site: pid for site, pid in pids(told).items() if site != "oslo"} == before

    # What an auditor goes by: it has carried what was packed before, and delivered none of it.
    assert mesh.stop("oslo") == 0
    carried, delivered = (
        {row["revision"] for row in mesh.ledger("oslo", stage) if row["revision"]}
        for stage in ("linked_in", "delivered")
    )
    assert carried == {former, mesh.mesh.revision}
    assert delivered == {mesh.mesh.revision}


def is_held(told: dict[str, Any]) -> bool:
    links = {f"{link['from']}-{link['to']}": link["state"] for link in told["links"]}
    return told["sites"]["oslo"]["state"] == links["tokyo-lima"] == "paused"


async def test_a_site_taken_out_by_mistake_is_put_back_while_others_share_its_process(
    live_mesh: MeshFactory,
) -> None:
    links = [pair("paris", "tokyo"), pair("tokyo", "lima")]
    mesh = await live_mesh(*SITES, topology="custom", links=links)
    await mesh.listen()
    mesh.start()
    await mesh.running()
    good = dict(mesh.document)
    mesh.document |= {"sites": {"paris": {}, "tokyo": {}}, "links": links[:1]}
    mesh.write()
    port = json.loads((mesh.state / "sites" / "lima" / "node.json").read_text())["admin_port"]

    async def ended() -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/status") as answer,
        ):
            lima = (await answer.json())["sites"]["lima"]
        return str(lima["reason"]) if lima["state"] == "stopped" else ""

    assert "and it was not drained" in await until(ended, lambda: f"ended\n{mesh.logs()}", 60)
    await mesh.source("paris").publish(100)
    # From the start: it gets what was published while it was out.
    mesh.document = good | {"sites": {**good["sites"], "lima": {"from": "start"}}}
    mesh.write()
    await mesh.running()
    await mesh.arrived()
    mesh.check(most_flags=0)
