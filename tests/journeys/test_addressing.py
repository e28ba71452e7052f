"""A hub and its shops, each with its own messages: one for a shop crosses the links to that shop
and no other, in order, whatever is killed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from relay.batches.batch import EVERY_SITE
from relay.state.flow_state import ANNOUNCED_AT_MOST
from simulation.invariants import check_site
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.traffic import TrafficSource
from tests.waiting import until

pytestmark = pytest.mark.any_release

KeyOf = Callable[[int], str]


def shops_and_hub(*shops: str) -> dict[str, Any]:
    """Shops take what is for them and the news; the hub takes reports."""
    return {
        "topology": {"hub": {"center": "hub"}},
        "sites": {"hub": {"wants": {"orders": ["report.#"]}}},
        "branches": {
            "names": list(shops),
            "template": {"wants": {"orders": ["store.{site}.#", "news"]}},
        },
    }


def wanted_at(site: str, key: str) -> bool:
    if site == "hub":
        return key.startswith("report.")
    return key == "news" or key.startswith(f"store.{site}.")


class Traffic:
    """What is published where with which key, and what came of it."""

    def __init__(self, mesh: LiveMesh) -> None:
        self.mesh = mesh
        self.keys: dict[str, KeyOf] = {}

    def source(self, site: str, key_of: KeyOf) -> TrafficSource:
        mesh = self.mesh
        made = TrafficSource(
            mesh.uri(site), mesh.cluster(site), key=lambda number: key_of(number).encode()
        )
        self.keys[site] = key_of
        mesh.sources[site] = made
        return made

    def expected(self, at: str) -> dict[str, dict[int, bytes]]:
        """By origin, what other sites have published for this one."""
        return {
            source.origin: {
                number: body
                for number, body in source.confirmed.items()
                if wanted_at(at, self.keys[site](number))
            }
            for site, source in self.mesh.sources.items()
            if site != at
        }

    async def arrived(self, *, within_s: float = 120) -> None:
        def missing() -> dict[str, int]:
            return {
                site: sum(
                    len(bodies.keys() - sink.seen[origin])
                    for origin, bodies in self.expected(site).items()
                )
                for site, sink in self.mesh.sinks.items()
            }

        await until(
            lambda: not any(missing().values()),
            lambda: f"all there; missing: {missing()}\n{self.mesh.logs()}",
            within_s,
        )

    def check(self, **most_flags: int) -> None:
        """Each site got what is for it, and nothing else: once, in order, unflagged but there."""
        for site, sink in self.mesh.sinks.items():
            flags = most_flags.get(site, 0)
            check_site(site, sink.from_others(), self.expected(site), most_flags=flags)


def logged_from_links(mesh: LiveMesh, site: str) -> dict[tuple[str, tuple[str, ...]], int]:
    """What the links brought into a site's log: messages by origin and destination set."""
    counts: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
    batches: set[tuple[Any, ...]] = set()
    for row in mesh.ledger(site, "linked_in"):
        if row["event"] != "batch" or row["kind"] == "mark":
            continue
        name = (row["origin"], row["incarnation"], *row["destinations"], row["sequence"])
        assert name not in batches, f"{name} twice in the log of {site}"
        batches.add(name)
        counts[row["origin"], tuple(row["destinations"])] += row["count"]
    return dict(counts)


@pytest.mark.slow
async def test_a_shop_s_messages_cross_the_links_to_that_shop_alone_in_order_over_a_kill(
    live_mesh: MeshFactory,
) -> None:
    shops = ("s1", "s2", "s3")
    mesh = await live_mesh("hub", *shops, **shops_and_hub(*shops))
    await mesh.listen()
    mesh.start(["hub"], shops)
    await mesh.running()
    traffic = Traffic(mesh)
    keys = ("store.s1.x", "store.s2.x", "store.s3.x", "store.s9.x", "store.s2.y", "news")
    hub = traffic.source("hub", lambda number: keys[number % len(keys)])
    s1 = traffic.source("s1", lambda number: ("store.s2.z", "report.s1")[number % 2])
    publishing = [
        asyncio.create_task(hub.publish(2400, per_second=500)),
        asyncio.create_task(s1.publish(1000, per_second=150)),
    ]
    await until(lambda: len(hub.confirmed) > 1000, "the hub publishes", 60)
    mesh.kill("hub")
    mesh.start(["hub"])
    await mesh.running(within_s=120)
    await asyncio.gather(*publishing)
    await hub.publish(3000 - len(hub.confirmed))
    await traffic.arrived()
    traffic.check(hub=ANNOUNCED_AT_MOST)
    told = await mesh.until_told(
        lambda told: told if not any(link["lag_messages"] for link in told["links"]) else None,
        "acknowledged over every link",
    )
    assert told["sites"]["hub"]["unwanted"] >= 100, "since its last start"
    mesh.stop("hub")
    mesh.stop(shops[0])
    assert logged_from_links(mesh, "s1") == {
        ("hub", ("s1",)): 500,
        ("hub", EVERY_SITE): 500,
    }
    assert logged_from_links(mesh, "s2") == {
        ("hub", ("s2",)): 1000,
        ("hub", EVERY_SITE): 500,
        ("s1", ("s2",)): 500,
    }
    assert logged_from_links(mesh, "s3") == {
        ("hub", ("s3",)): 500,
        ("hub", EVERY_SITE): 500,
    }
    # Of what its log had just confirmed when it was killed, the hub's links have no rows.
    assert logged_from_links(mesh, "hub").keys() == {("s1", ("s2",)), ("s1", ("hub",))}
    packed = [row for row in mesh.ledger("hub", "packed") if row["destinations"] == ["hub"]]
    assert sum(row["count"] for row in packed) == 500, "what no site wants is in the ledger"


@pytest.mark.slow
async def test_of_twelve_shops_one_gets_its_message_over_its_own_link(
    live_mesh: MeshFactory,
) -> None:
    shops = [f"s{number}" for number in range(1, 13)]
    mesh = await live_mesh("hub", *shops, **shops_and_hub(*shops))
    await mesh.listen()
    mesh.start()
    await mesh.running()
    traffic = Traffic(mesh)
    hub = traffic.source("hub", lambda number: f"store.s{number % 12 + 1}.price")
    await hub.publish(12 * 25)
    reports = [traffic.source(shop, lambda number: "report.day") for shop in shops]
    await asyncio.gather(*(source.publish(5) for source in reports))
    await traffic.arrived()
    traffic.check()
    mesh.stop("hub")
    for shop in shops:
        assert logged_from_links(mesh, shop) == {("hub", (shop,)): 25}
    assert logged_from_links(mesh, "hub") == {(shop, ("hub",)): 5 for shop in shops}
