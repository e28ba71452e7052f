"""Lines that do whatever lines do, as a seed has it: all arrive, in order, none twice."""

from __future__ import annotations

import asyncio
import random
from typing import Literal

import pytest

from tests.journeys.conftest import MeshFactory
from wan_proxy import DSL_BRANCH, LAN, LOSSY_MOBILE, METRO, SATELLITE, ProxiedLine

RING = ("paris", "tokyo", "sydney")
ROUND = [(RING[n], RING[(n + step) % 3]) for step in (1, 2) for n in range(3)]
CONDITIONS = (LAN, METRO, DSL_BRANCH, SATELLITE, LOSSY_MOBILE)


def misbehave(line: ProxiedLine, chance: random.Random) -> None:
    """One thing that a line may do; a cut one is healed more often than not."""
    if line.is_cut and chance.random() < 0.6:
        line.heal()
        return
    what = chance.choice(("cut", "cut", "reset", "close", "half open", "heal", "condition"))
    if what == "cut":
        ways: tuple[Literal["outward", "inward", "both"], ...] = ("outward", "inward", "both")
        line.cut(
            chance.choice(ways),
            forget=chance.random() < 0.5,
            new_connects=chance.choice(("held", "unanswered")),
        )
    elif what == "reset":
        line.reset()
    elif what == "close":
        line.close()
    elif what == "half open":
        line.half_open(chance.choice(("client", "target")))
    elif what == "heal":
        line.heal()
    else:
        line.set(chance.choice(CONDITIONS))


FAULTS = 30
"""About one a second."""


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(3)])
async def test_lines_that_misbehave_at_random_lose_and_repeat_nothing(
    listening_mesh: MeshFactory, seed: int
) -> None:
    chance = random.Random(seed)
    # A link's ends meet at its receiver's broker, its sender's, or a third site's.
    links = [
        {"from": sender, "to": receiver, "dial": chance.choice(RING)} for sender, receiver in ROUND
    ]
    mesh = await listening_mesh(
        *RING, topology="ring", both=True, links=links, wan=dict.fromkeys(ROUND, LAN)
    )
    lines = list(mesh.lines.values())

    async with mesh.publishing(200, size=1024):
        await mesh.more_published(200)
        for _ in range(FAULTS):
            misbehave(chance.choice(lines), chance)
            await asyncio.sleep(chance.uniform(0.1, 2.0))
        for line in lines:
            line.heal()
            line.set(LAN)
        await mesh.more_published(400)
    await mesh.arrived(within_s=300)
    mesh.check(most_flags=0)
    told = await mesh.status()
    for site, figures in told["sites"].items():
        assert figures["quarantined"] == figures["dead_lettered"] == 0, (site, figures)
    for link in told["links"]:
        assert link["refused"] == 0, link
