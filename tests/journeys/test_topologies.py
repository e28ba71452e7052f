"""Whatever the graph: every message exactly once at every other site, in order, none back home."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.journeys.application import at, counters_say, letter
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh

FOUR = ("paris", "tokyo", "sydney", "lima")
FIVE = (*FOUR, "oslo")
TREE = ("root", "left", "right", "ll", "lr", "rl", "rr")


def both_ways(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {
        "topology": "custom",
        "links": [{"from": a, "to": b, "both": True} for a, b in pairs],
    }


GRAPHS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "ring one way": (FOUR, {"topology": "ring"}),
    "ring both ways": (FOUR, {"topology": "ring", "both": True}),
    "complete": (FOUR, {"topology": "complete"}),
    "tree of seven": (
        TREE,
        both_ways(
            *[("root", "left"), ("root", "right"), ("left", "ll")],
            *[("left", "lr"), ("right", "rl"), ("right", "rr")],
        ),
    ),
    "five meshed": (
        FIVE,
        both_ways(*[(a, b) for i, a in enumerate(FIVE) for b in FIVE[i + 1 :]]),
    ),
}

ELSEWHERE = {
    "ring both ways": pytest.mark.long,
    "complete": pytest.mark.slow,
    "five meshed": pytest.mark.slow,
    "tree of seven": pytest.mark.slow,
}
"""A ring and a tree are the two kinds; the triangle below is a complete graph."""


@pytest.mark.parametrize(
    "graph",
    [pytest.param(one, marks=ELSEWHERE.get(one, ())) for one in GRAPHS],
)
async def test_every_message_once_at_every_other_site(live_mesh: MeshFactory, graph: str) -> None:
    sites, document = GRAPHS[graph]
    mesh = await live_mesh(*sites, **document)
    await mesh.listen()
    mesh.start()
    await mesh.running()
    await mesh.publish_everywhere(1000)
    await mesh.arrived()
    mesh.check(most_flags=0)
    packed = sum(site["packed"] for site in (await mesh.status())["sites"].values())
    assert packed == 1000 * len(sites)
    # A sender's ledger has what it has heard of: the acknowledgements may still be on their way.
    told = await mesh.until_told(
        lambda told: told if not any(link["lag_messages"] for link in told["links"]) else None,
        "acknowledged over every link",
    )
    for link in told["links"]:
        assert link["resent"] == 0, link
    assert mesh.stop(sites[0]) == 0
    for link in mesh.mesh.links:
        gone_out = linked(mesh, link.sender, "linked_out", link.receiver)
        come_in = linked(mesh, link.receiver, "linked_in", link.sender)
        assert gone_out, f"{link.name}: nothing"
        assert len(set(gone_out)) == len(gone_out), f"{link.name} carried a batch twice"
        # What another path had brought already went over this one in vain.
        assert set(come_in) <= set(gone_out)
        assert len(set(come_in)) == len(come_in)
    check_books(mesh, sites)


async def test_the_triangle_of_rabbitmqs_own_federation_tests(live_mesh: MeshFactory) -> None:
    """Three sites, each linked with both others, a queue at each, 500 messages from each: 4,500
    deliveries. Federation, which bounds hops, makes 7,500 of them.
    """
    sites = ("paris", "tokyo", "sydney")
    mesh = await live_mesh(*sites, topology="complete")
    mesh.start()
    await mesh.running()
    async with at(mesh, *sites) as applications:
        inboxes = [await one.listen("orders") for one in applications]
        for number, one in enumerate(applications):
            bodies = [f"{number}/{nth}".encode() for nth in range(500)]
            outcome = await one.post("orders", *(letter(body, body.decode()) for body in bodies))
            assert (outcome.nacked, outcome.returned, outcome.unknown) == ((), (), ())
        expected = sorted(f"{number}/{nth}".encode() for number in range(3) for nth in range(500))
        for inbox in inboxes:
            await inbox.has(1500)
        # What came once too often would still be on its way: no link has anything left to bring.
        await mesh.until_told(
            lambda told: not any(link["lag_messages"] for link in told["links"]),
            "acknowledged over every link",
        )
        for site in sites:
            await counters_say(mesh, site, delivered=1000)
        assert [sorted(inbox.bodies) for inbox in inboxes] == [expected] * 3
        assert not any(message.flagged for inbox in inboxes for message in inbox.got)


def check_books(mesh: LiveMesh, sites: Sequence[str]) -> None:
    """Each site's ledger says that it has settled all that any has packed, and with what sums."""
    packed = {site: mesh.ledger(site, "packed") for site in sites}
    delivered = {site: mesh.ledger(site, "delivered") for site in sites}
    for origin in sites:
        batches = [row for row in packed[origin] if row["event"] == "batch"]
        last = batches[-1]["incarnation"], batches[-1]["incarnation_sequence"]
        told = [row for row in packed[origin] if row["event"] == "through"][-1]
        assert (told["incarnation"], told["incarnation_sequence"]) == last
        assert told["through"] > batches[-1]["last_published"]
        sums = summed(batches)
        assert sums[0] == 1000
        for site in sites:
            rows = [row for row in delivered[site] if row["origin"] == origin]
            told = [row for row in rows if row["event"] == "through" and row["exchange"]][-1]
            assert (told["incarnation"], told["incarnation_sequence"]) == last, site
            assert summed(row for row in rows if row["event"] == "batch") == sums, site


def summed(rows: Iterable[dict[str, Any]]) -> list[int]:
    columns = ("delivered_count", "identity_sum_1", "identity_sum_2")
    every = list(rows)
    return [sum(row[column] for row in every) % 2**64 for column in columns]


def linked(mesh: LiveMesh, site: str, stage: str, neighbour: str) -> list[tuple[str, str, int]]:
    """The batches that the site's ledger says went over a link: (origin, incarnation, number)."""
    return [
        (row["origin"], row["incarnation"].hex(), row["incarnation_sequence"])
        for row in mesh.ledger(site, stage)
        if row["event"] == "batch" and row["neighbour"] == neighbour
    ]
