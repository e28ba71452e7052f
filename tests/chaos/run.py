"""One run: the mesh stands up, faults strike as the schedule says, all is healed, drains, and is
accounted for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isthmus.brokers.installation import RabbitMQInstallation
from tests.chaos.drain import LOOK_EVERY_S, drain
from tests.chaos.faults import STRIKES
from tests.chaos.outcome import Outcome
from tests.chaos.schedule import KINDS, Fault
from tests.chaos.stock import take_stock
from tests.chaos.timeline import Sample, Timeline, sampled
from tests.chaos.world import SITES, World, standing

QUIET_BEFORE_S = 3.0
"""Of load before the first fault may strike."""
Say = Callable[[str], None]


async def run(
    folder: Path,
    installation: RabbitMQInstallation,
    graph: str,
    schedule: Sequence[Fault],
    *,
    seed: int,
    per_second: float,
    say: Say,
    seen: Callable[[Sample], None],
    several_nodes: bool = False,
) -> Outcome:
    """Play a schedule against a mesh in `folder`; `say` gets what happens, `seen` each sample."""
    loop = asyncio.get_running_loop()
    say(f"{len(SITES)} brokers and nodes start, in a {graph}")
    async with standing(
        folder, installation, graph, seed, per_second, several_nodes=several_nodes
    ) as world:
        zero = loop.time() + QUIET_BEFORE_S
        outcome = Outcome(
            Timeline(lambda: loop.time() - zero), schedule, graph, installation.version
        )
        async with _beside(world, outcome, seen):
            await _strike_all(world, outcome, say)
            await drain(world, outcome, say)
        await take_stock(world, outcome, say)
    return outcome


@contextlib.asynccontextmanager
async def _beside(world: World, outcome: Outcome, seen: Callable[[Sample], None]) -> Any:
    """Samples are taken, and nodes that end are begun again, while the block lasts."""

    async def watch() -> None:
        while True:
            world.start_what_ended()
            await asyncio.sleep(LOOK_EVERY_S)

    tasks = [
        asyncio.create_task(watch()),
        asyncio.create_task(
            sampled(outcome.timeline, world.mesh.status, lambda: world.load.published, seen)
        ),
    ]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _strike_all(world: World, outcome: Outcome, say: Say) -> None:
    places = _Places(outcome.schedule)
    await asyncio.gather(*(_strike(world, outcome, places, one, say) for one in outcome.schedule))


async def _strike(world: World, outcome: Outcome, places: _Places, fault: Fault, say: Say) -> None:
    timeline = outcome.timeline
    strike = timeline.strike(fault)
    await asyncio.sleep(max(0.0, fault.at_s - timeline.clock()))
    async with places.held(fault):
        try:
            async with STRIKES[fault.kind](world, fault):
                strike.began_s = timeline.now()
                say(f"{strike.began_s:6.1f} s  {fault.kind} {fault.where} {fault.detail}".rstrip())
                await asyncio.sleep(fault.lasts_s)
        except Exception as error:
            # Told with all else that does not hold: other faults still are to be healed.
            strike.trouble = f"{type(error).__name__}: {error}"
            outcome.broken.append(f"fault #{fault.number} ({fault}): {strike.trouble}")
        strike.healed_s = timeline.now()
        if fault.lasts_s:
            say(f"{strike.healed_s:6.1f} s  over: {fault.kind} {fault.where}")


class _Places:
    """Sites and links, each of which one fault strikes at a time: healing may take longer than
    the schedule could know."""

    def __init__(self, schedule: Sequence[Fault]) -> None:
        self._locks = {fault.where: asyncio.Lock() for fault in schedule}
        self._free_at = dict.fromkeys(self._locks, 0.0)

    @contextlib.asynccontextmanager
    async def held(self, fault: Fault) -> Any:
        loop = asyncio.get_running_loop()
        kind = KINDS[fault.kind]
        all_of_it = kind.on == "mesh"
        wanted = sorted(self._locks) if all_of_it else [fault.where]
        async with contextlib.AsyncExitStack() as held:
            for place in wanted:
                await held.enter_async_context(self._locks[place])
            rests = max(self._free_at[place] for place in wanted) - loop.time()
            await asyncio.sleep(max(0.0, rests))
            yield
            for place in wanted:
                self._free_at[place] = loop.time() + kind.rest_s
