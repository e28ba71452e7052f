"""The end of a run: all is healed, and what waited has to arrive."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any

from tests.chaos.outcome import Outcome
from tests.chaos.world import SITES, World
from tests.live_brokers import START_WITHIN_S
from tests.waiting import until
from wan_proxy import LAN

STANDS_FOR_S = 5.0
"""Drained is what is so for this long: nodes ask their broker for egress every four seconds."""
LOOK_EVERY_S = 0.5
ANSWERED_WITHIN_S = 120.0


async def heal_all(world: World) -> None:
    """Whatever could not be healed as it should have been."""
    for line in world.mesh.lines.values():
        line.heal()
        line.set(LAN)
    for site, vhost in world.mesh.vhosts.items():
        if vhost.broker.is_running:
            vhost.broker.resume()
        await vhost.broker.start(deadline_s=START_WITHIN_S)
        for node in world.nodes(site):
            if node not in world.mesh.processes:
                world.start(node)
            world.mesh.kill(node, signal.SIGCONT)


async def drain(world: World, outcome: Outcome, say: Callable[[str], None]) -> None:
    """Heal all, end the load, and wait until nothing is under way any more; notes how long it took,
    or what was not in time."""
    loop = asyncio.get_running_loop()
    told = outcome.drain
    await heal_all(world)
    told.live_per_s = world.load.published / max(outcome.timeline.now(), 1.0)
    began = loop.time()
    try:
        await asyncio.wait_for(world.load.end(), ANSWERED_WITHIN_S)
    except TimeoutError:
        outcome.broken.append(f"publishers were not answered within {ANSWERED_WITHIN_S:.0f} s")
    published = world.load.published
    told.backlog = max(0, *[published - await world.witnessed(site) for site in SITES])
    say(f"healed; {told.backlog} messages behind; has to drain within {told.deadline_s:.0f} s")
    since: float | None = None
    waiting: list[str] = []

    async def is_drained() -> bool:
        nonlocal since, waiting
        waiting = not_drained(await world.mesh.status())
        if waiting:
            since = None
            return False
        since = since or loop.time()
        return loop.time() - since >= STANDS_FOR_S

    try:
        within_s = told.deadline_s + STANDS_FOR_S
        await until(is_drained, lambda: "; ".join(waiting), within_s, every_s=LOOK_EVERY_S)
    except TimeoutError as error:
        outcome.broken.append(f"I7: not drained {error}")
    else:
        assert since is not None
        told.took_s = round(since - began, 1)
        say(f"drained after {told.took_s} s")


def not_drained(told: Mapping[str, Any]) -> list[str]:
    """What a status says that is still to be done."""
    return [
        f"{site}: {key} {figures.get(key)}"
        for site, figures in told["sites"].items()
        for key, wanted in (
            *(("state", "running"), ("egress_messages", 0)),
            *(("undelivered_messages", 0), ("standing_flows", {})),
        )
        if figures.get(key) != wanted
    ] + [
        f"{link['from']}-{link['to']}: {key} {link.get(key)}"
        for link in told["links"]
        for key, wanted in (("state", "running"), ("lag_messages", 0))
        if link.get(key) != wanted
    ]
