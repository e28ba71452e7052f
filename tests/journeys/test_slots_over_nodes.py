"""A site whose slots several nodes share, while nodes come and go under load."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from spark_audit.job import Audit
from spark_audit.period import Period
from spark_audit.report.report import AuditVerdict
from tests.journeys.application import Inbox, at, letter
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.journeys.several_nodes import SiteServers
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.test_slots import now_ms
from tests.waiting import until

SITE = "tokyo"
SLOTS = 8
EXCHANGES = ("orders", "prices", "news", "alarms")
PLACES = {"orders": 0, "prices": 3, "news": 5, "alarms": 6}
MOST_IN_ONE = {"orders": 0, "prices": 0, "news": 0, "alarms": 6}
pytestmark = pytest.mark.slow


class SharedSlots:
    """A site of eight slots, beside one of one and one of three."""

    def __init__(self, mesh: LiveMesh, traffic: Load) -> None:
        self.mesh = mesh
        self.traffic = traffic

    async def shares(self) -> dict[str, list[int]]:
        """The slots of each node that answers, as `isthmus status` has them."""
        nodes = (await self.mesh.status())["sites"][SITE].get("nodes", {})
        return {name: node["slots"] for name, node in nodes.items() if node.get("slots")}

    async def states(self) -> set[str]:
        """The states of all slots, each where it runs."""
        slots = (await self.mesh.status())["sites"][SITE]["slots"]
        return {slot["state"] for slot in slots}

    async def evens_out(self, *nodes: str, state: str = "running") -> dict[str, list[int]]:
        """Wait until these nodes have all slots, as many each as can be, in a state."""
        shares: dict[str, list[int]] = {}

        async def is_even() -> bool:
            nonlocal shares
            shares = await self.shares()
            counts = [len(shares.get(node, ())) for node in nodes]
            all_slots = sorted(slot for slots in shares.values() for slot in slots)
            is_shared = all_slots == list(range(SLOTS)) and max(counts) - min(counts) <= 1
            return is_shared and await self.states() == {state}

        await until(is_even, lambda: f"{nodes} share: {shares}\n{self.mesh.logs()}", 120)
        return shares


@pytest.fixture
async def shared_slots(
    request: pytest.FixtureRequest, tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> Any:
    """The mesh of a topology, with the first node of the site; `param` has also the places of the
    exchanges at that site, and the messages a second of each stream.
    """
    async with SiteServers.started(tmp_path, 1) as servers:
        topology, place, per_second = request.param
        site = {"slots": SLOTS, "place": place, "nodes": "any", "cluster": servers.keys}
        mesh = await live_mesh(
            *("paris", SITE, "lima"),
            topology=topology,
            exchanges=[{"name": name} for name in EXCHANGES],
            sites={"paris": {}, SITE: site, "lima": {"slots": 3, "place": {"news": 1}}},
        )
        mesh.start(["paris"], ["lima"])
        mesh.start_node(SITE, "a")
        await mesh.running()
        traffic = load(mesh, per_second=per_second)
        await traffic.start()
        yield SharedSlots(mesh, traffic)
        await mesh.close()


RING, COMPLETE, HUB = ((topology, PLACES, 30) for topology in ("ring", "complete", {"hub": SITE}))
ONE_IS_BUSY = "complete", MOST_IN_ONE, 100
"""Some 3,000 messages a second in one slot, and a third of that in all others."""


@pytest.mark.spark
@pytest.mark.parametrize(
    "shared_slots",
    [
        pytest.param(COMPLETE, id="complete"),
        pytest.param(RING, id="ring", marks=pytest.mark.long),
        pytest.param(HUB, id="hub", marks=pytest.mark.long),
    ],
    indirect=True,
)
async def test_slots_follow_the_nodes_that_are_there_and_then_rest(
    shared_slots: SharedSlots, spark: Any
) -> None:
    begin = now_ms()
    mesh, traffic = shared_slots.mesh, shared_slots.traffic
    assert await shared_slots.evens_out("a") == {"a": list(range(SLOTS))}
    mesh.start_node(SITE, "b")
    await shared_slots.evens_out("a", "b")
    mesh.start_node(SITE, "c")
    before = await shared_slots.evens_out("a", "b", "c")
    await traffic.more(2000)
    assert await shared_slots.shares() == before, "then they rest"
    mesh.kill(f"{SITE}/b")
    await shared_slots.evens_out("a", "c")
    assert mesh.stop(f"{SITE}/a") == 0
    await shared_slots.evens_out("c")
    await traffic.more(500)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * 2 if SITE in (site, origin) else 0)
    # The ledgers of three nodes, of which one was killed, are those of one site.
    period = Period(begin, now_ms() + 1)
    for node in ("paris", "lima", f"{SITE}/c"):
        assert mesh.stop(node) == 0
    report = Audit(spark, mesh.mesh, str(mesh.state / "sites"), period).run()
    assert report.verdict is AuditVerdict.PROVEN, (report.as_json(), report.why_not_proven)


@pytest.mark.long
@pytest.mark.parametrize("shared_slots", [COMPLETE], indirect=True)
async def test_orders_reach_all_nodes_and_a_slot_moves_where_it_is_told(
    shared_slots: SharedSlots,
) -> None:
    mesh, traffic = shared_slots.mesh, shared_slots.traffic
    mesh.start_node(SITE, "b")
    before = await shared_slots.evens_out("a", "b")
    moved = before["a"][0]
    code, said = await isthmus(mesh, "slots", "--site", SITE, "--move", str(moved), "--to", "b")
    assert code == 0, said
    assert f"b runs slot {moved}" in said
    assert moved in (await shared_slots.shares())["b"]
    code, said = await isthmus(mesh, "slots", "--site", SITE, "--move", str(moved), "--to", "c")
    assert code == 1, said
    assert "there is no node c; the site has a, b now" in said
    code, said = await isthmus(mesh, "pause", "--site", SITE)
    assert code == 0, said
    await shared_slots.evens_out("a", "b", state="paused")
    # The node with the order ends: the others keep it.
    first = next(node for node, slots in (await shared_slots.shares()).items() if 0 in slots)
    other = {"a": "b", "b": "a"}[first]
    assert mesh.stop(f"{SITE}/{first}") == 0
    await shared_slots.evens_out(other, state="paused")
    code, said = await isthmus(mesh, "resume", "--site", SITE)
    assert code == 0, said
    await mesh.running()
    await traffic.more(300)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: 0)


@pytest.mark.long
@pytest.mark.parametrize("shared_slots", [ONE_IS_BUSY], indirect=True)
async def test_the_node_of_a_busy_slot_has_fewer_others_and_then_all_rest(
    shared_slots: SharedSlots,
) -> None:
    mesh, traffic = shared_slots.mesh, shared_slots.traffic
    mesh.start_node(SITE, "b")
    shares: dict[str, list[int]] = {}
    shown: list[int | None] = []
    clock = asyncio.get_running_loop()
    changed_at = clock.time()

    async def they_rest() -> bool:
        nonlocal shares, shown, changed_at
        before, shares = shares, await shared_slots.shares()
        if shares != before:
            changed_at = clock.time()
        _, said = await isthmus(mesh, "slots", "--site", SITE, "--json")
        slots = json.loads(said)["sites"][SITE]
        shown = [(slot["shared"] or {}).get("messages_s") for slot in slots]
        # Longer than nodes wait before a move by loads.
        return clock.time() - changed_at > 45 and None not in shown

    await until(they_rest, lambda: f"{shares} {shown}\n{mesh.logs()}", 300, every_s=1)
    busy = next(slots for slots in shares.values() if 0 in slots)
    assert len(shares) == 2
    assert sum(map(len, shares.values())) == SLOTS
    assert len(busy) < SLOTS / 2
    rates = [rate or 0 for rate in shown]
    assert rates[0] > sum(rates[1:]), "however slowly a busy machine publishes"
    assert rates[1] == 0
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: 0)


@pytest.mark.parametrize("shared_slots", [HUB], indirect=True)
async def test_one_identity_published_at_two_sites_arrives_once_where_nodes_share_the_slots(
    shared_slots: SharedSlots,
) -> None:
    mesh = shared_slots.mesh
    mesh.start_node(SITE, "b")
    await shared_slots.traffic.end()
    async with at(mesh, "paris", SITE, "lima") as (paris, tokyo, lima):
        inboxes = [await tokyo.listen(exchange) for exchange in EXCHANGES]
        sent: list[bytes] = []
        # Until the second node has slots, and a while on.
        moved_at = None
        while moved_at is None or len(sent) < moved_at + 40:
            number = len(sent)
            both = letter(b"both %d" % number, f"00000000-0000-4000-8000-{number:012}")
            exchange = EXCHANGES[number % len(EXCHANGES)]
            await asyncio.gather(paris.post(exchange, both), lima.post(exchange, both))
            sent.append(both.body)
            if moved_at is None and number % 20 == 0:
                moved_at = number if len((await shared_slots.shares()).get("b", ())) > 2 else None
        await shared_slots.evens_out("a", "b")
        for exchange in EXCHANGES:
            await paris.post(exchange, letter(b"last", f"{exchange}-paris"))
            await lima.post(exchange, letter(b"last", f"{exchange}-lima"))

        def came(inbox: Inbox) -> list[bytes]:
            return [one.body for one in inbox.got if one.body.startswith((b"both", b"last"))]

        # All of before have come then, or will not.
        await until(
            lambda: all(came(inbox).count(b"last") == 2 for inbox in inboxes), mesh.logs, 90
        )
        bodies = [body for inbox in inboxes for body in came(inbox) if body != b"last"]
    assert sorted(bodies) == sorted(sent)
