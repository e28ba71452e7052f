"""A broker's retention eats what was still needed: who needed it stops, and goes on when a person
has accepted that; what is gone was told by name, to the message, and stands in the ledger.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.brokers import provision
from federation.names import Names
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus
from tests.waiting import until

PAIR = ("paris", "tokyo")
STOPPED = 3


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker frees whole segments."""
    monkeypatch.setattr(provision, "LOG_SEGMENT_BYTES", 64 * 1024)


async def pair_at_work(live_mesh: MeshFactory) -> LiveMesh:
    """Paris has published a hundred messages, 0 to 99, and Tokyo has them."""
    mesh = await live_mesh(*PAIR, topology="complete")
    await mesh.listen(["tokyo"])
    mesh.start_each()
    await mesh.running()
    await mesh.source("paris").publish(100)
    await mesh.arrived()
    return mesh


async def eats(mesh: LiveMesh, site: str) -> None:
    """The site's broker, all but the end of its log, however much of it is needed."""
    policy = {
        "pattern": f"^{Names(mesh.mesh.name).log}$",
        "definition": {"max-length-bytes": 1024 * 1024},
        "priority": 100,
        "apply-to": "all",
    }
    await mesh.vhosts[site].api("PUT", "/policies/{vhost}/short", policy)
    # It looks when the next segment begins.
    await mesh.source("paris").publish(150, size=1024)


async def gap_of(mesh: LiveMesh, site: str) -> dict[str, Any]:
    """What `isthmus accept-gap` shows without being told to accept."""
    code, said = await isthmus(mesh, "accept-gap", site, "--json")
    assert code == 1, said
    (gap,) = json.loads(said)["gaps"]
    assert not gap["goes_on"]
    return dict(gap)


def accepted_rows(mesh: LiveMesh, site: str, stage: str) -> list[str]:
    rows = mesh.ledger(site, stage)
    assert [row["event"] for row in rows].count("gap") == 1
    return [row["reason"] for row in rows if row["event"] == "gap_accepted"]


def stands_at_gap(told: dict[str, Any]) -> bool:
    return any(link["state"] == "gap" for link in told["links"])


@pytest.mark.long
@pytest.mark.usefixtures("small_segments")
async def test_a_link_stops_at_a_gap_and_goes_on_when_a_person_accepts_it(
    live_mesh: MeshFactory,
) -> None:
    mesh = await pair_at_work(live_mesh)
    paris, tokyo = mesh.source("paris"), mesh.sinks["tokyo"]
    assert mesh.stop("tokyo") == 0
    await paris.publish(4000, size=1024)
    await mesh.until_told(
        lambda told: (
            told["sites"]["paris"]["undelivered_messages"] == 0
            and told["sites"]["paris"]["packed"] == 4100
        ),
        "paris is done with its own",
    )
    await eats(mesh, "paris")
    assert mesh.stop("paris") == 0  # its memory has the last megabytes
    mesh.start_each()
    await mesh.until_told(stands_at_gap, "the link says that there is a gap")

    gap = await gap_of(mesh, "paris")
    assert gap["link"] == "paris-tokyo"
    (gone,) = gap["gone"]
    assert gone["origin"] == mesh.cluster("paris")
    code, said = await isthmus(mesh, "accept-gap", "paris", "--link", "paris-tokyo", "--yes")
    assert code == 0, said
    assert f"sequences {gone['first']}-{gone['last']}: " in said
    await mesh.running()
    await paris.publish(100)
    await settles(mesh, gap["messages"])
    # To the message what was named as gone, and it is the one thing that is missing.
    assert 0 < gap["messages"] < 4000
    assert mesh.missing() == {"tokyo": gap["messages"]}
    lacking = sorted(set(paris.confirmed) - {m.number for m in tokyo.from_others()})
    assert lacking == list(range(100, 100 + gap["messages"]))
    assert mesh.stop("paris") == 0
    (reason,) = accepted_rows(mesh, "paris", "linked_out")
    assert f"sequences {gone['first']}-{gone['last']}: " in reason


async def settles(mesh: LiveMesh, missing: int) -> None:
    """All comes but for so many."""
    await until(
        lambda: mesh.missing() == {"tokyo": missing},
        lambda: f"{mesh.missing()} are missing, not {missing}",
        60,
    )


@pytest.mark.long
@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("node_lives", [True, False])
async def test_a_delivery_stops_at_a_gap_and_goes_on_when_a_person_accepts_it(
    live_mesh: MeshFactory, node_lives: bool
) -> None:
    mesh = await pair_at_work(live_mesh)
    paris, tokyo = mesh.source("paris"), mesh.sinks["tokyo"]
    code, said = await isthmus(mesh, "pause", "--site", "tokyo")
    assert code == 0, said
    await paris.publish(lag := 10_000, size=1024)
    await mesh.until_told(
        lambda told: (
            told["sites"]["tokyo"]["undelivered_messages"] == lag
            and all(link["lag_messages"] == 0 for link in told["links"])
        ),
        "tokyo's log has all",
    )
    # A node that begins reads back what its log has: none of it is news to it after that.
    assert mesh.stop("tokyo") == 0
    mesh.start(["tokyo"])
    await mesh.until_told(
        lambda told: (
            told["sites"]["tokyo"]["state"] == "paused"
            and told["sites"]["tokyo"]["undelivered_messages"] == lag
        ),
        "tokyo holds all of it",
    )
    await eats(mesh, "tokyo")
    if not node_lives:
        assert mesh.stop("tokyo") == 0
    code, said = await isthmus(mesh, "resume", "--site", "tokyo")
    assert code == 0, said
    if node_lives:
        await mesh.until_told(
            lambda told: told["sites"]["tokyo"].get("gaps"),
            "tokyo's delivery says that there is a gap",
        )
    else:
        mesh.start(["tokyo"])
        assert await mesh.dies("tokyo") == STOPPED
        code, said = await isthmus(mesh, "recover", "--site", "tokyo")
        assert (code, "accept-gap" in said) == (1, True), said

    gap = await gap_of(mesh, "tokyo")
    assert gap["exchange"] == ("orders" if node_lives else "")
    code, said = await isthmus(mesh, "accept-gap", "tokyo", "--yes")
    assert code == (not node_lives), said
    if not node_lives:
        mesh.start(["tokyo"])
    await mesh.running()
    await paris.publish(100)
    await settles(mesh, gap["messages"])
    assert not any(message.flagged for message in tokyo.from_others())
    assert mesh.stop("tokyo") == 0
    (reason,) = accepted_rows(mesh, "tokyo", "delivered")
    assert "sequences" in reason
