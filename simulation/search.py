"""Search for a world that breaks a promise: draw scenarios, run many, shrink one that fails."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from relay.packing.memory_egress import Returns
from simulation.faults import (
    OF_BEST_EFFORT,
    OF_GROUPS,
    TOGETHER,
    Trouble,
    kinds_of_nodes,
    without_losses,
)
from simulation.load import Load
from simulation.scenario import Scenario, ScenarioOutcome, run
from simulation.topologies import FEWEST, GROUPED, topologies_for
from simulation.world import silence

SIZES = (((2, 4), 77), ((5, 8), 22), ((9, 30), 1))
"""Numbers of sites, from and to, and their weight in a hundred: 30 sites take long."""
RATES = ("512kbit/s", "4Mbit/s", "1Gbit/s")
LANED = 0.15
"""Share of the worlds that have lanes, and links with one of these rates."""
SHUFFLED = 0.2
"""Share of the worlds whose brokers hand out again in any order."""
SHARED = 0.25
"""Share of the worlds of few sites whose sites have several nodes."""
FEW = 4
GROUPS = 0.1
"""Share of the worlds of enough sites, of one slot each, that have a multicast group."""
BEST_EFFORT = 0.3
"""Share of the worlds that have exchanges whose order is best effort."""
PARTITIONED = 0.2
"""Share of the worlds whose exchanges have partitions."""
MOST_PARTITIONS = 4
FAILOVERS = 0.2
"""Share of the worlds in which applications publish at two sites."""
LATER = "freeze"
"""Fault added later, drawn apart: the worlds of earlier seeds stay as they are."""
WORLDS_A_PROCESS = 200
_INVARIANT = re.compile(r"I\d")


def random_scenario(seed: int, slots: int = 1, nodes: int | None = None) -> Scenario:
    """Draw a scenario of any size by its seed: mesh, load and faults. `slots` is the most that a
    site has; where sites may have several, the mesh has more exchanges. Each site has `nodes`; if
    None, the seed draws how many, and one where sites may have several slots.

    Drawn apart from the world's own draws: the scenario's options, written out, give the same
    world.
    """
    # Seeded by a string, so drawn otherwise than the world, which is seeded by the number.
    chance = random.Random(f"scenario {seed}")
    (fewest, most), _ = chance.choices(SIZES, [share for _, share in SIZES])[0]
    sites = chance.randint(fewest, most)
    topology = chance.choice(topologies_for(sites))
    messages = chance.choice((10, 30, 100)) if sites <= 4 else chance.choice((3, 10))
    load = Load(messages, chance.choice((5.0, 20.0, 60.0)), chance.choice((40, 150, 1000)))
    kinds = tuple(kind for kind in TOGETHER if kind != LATER)
    if chance.random() < 0.5:
        # A few kinds, often: many kinds at once would mend or hide some failures.
        few = chance.sample(kinds, chance.randint(1, 4))
        kinds = tuple(kind for kind in kinds if kind in few)
    apart = random.Random(f"later faults {seed}")
    if apart.random() < 0.25:
        kinds += (LATER,)
    if apart.random() < 0.25:
        kinds = (*without_losses(kinds), "change")
    trouble = Trouble(kinds, chance.choice((0.3, 1.0, 3.0)))
    exchanges = chance.randint(1, 3) + (slots if slots > 1 else 0)
    lanes = random.Random(f"lanes {seed}")
    max_rate = lanes.choice(RATES) if lanes.random() < LANED else ""
    apart = random.Random(f"returns {seed}")
    returns = Returns.SHUFFLED if apart.random() < SHUFFLED else Returns.FIFO
    apart = random.Random(f"nodes {seed}")
    is_shared = slots == 1 and sites <= FEW and apart.random() < SHARED
    drawn = apart.choice((2, 2, 3)) if is_shared else 1
    nodes = nodes or drawn
    if of_nodes := kinds_of_nodes(nodes, slots):
        more = apart.sample(of_nodes, apart.randint(1, len(of_nodes)))
        trouble = replace(trouble, kinds=(*kinds, *more))
    apart = random.Random(f"group {seed}")
    if slots == 1 and sites >= FEWEST[GROUPED] and apart.random() < GROUPS:
        topology = GROUPED
        more = apart.sample(OF_GROUPS, apart.randint(1, len(OF_GROUPS)))
        trouble = replace(trouble, kinds=(*trouble.kinds, *more))
    apart = random.Random(f"order {seed}")
    best_effort = apart.randint(1, exchanges) if apart.random() < BEST_EFFORT else 0
    if best_effort:
        trouble = replace(trouble, kinds=(*trouble.kinds, *OF_BEST_EFFORT))
    apart = random.Random(f"partitions {seed}")
    partitions = apart.randint(2, MOST_PARTITIONS) if apart.random() < PARTITIONED else 1
    if random.Random(f"failover {seed}").random() < FAILOVERS:
        trouble = replace(trouble, kinds=(*trouble.kinds, "failover"))
    return Scenario(
        seed,
        topology,
        sites,
        load,
        trouble,
        exchanges,
        max_rate,
        returns,
        nodes,
        slots,
        best_effort,
        partitions,
    )


def run_many(scenarios: Sequence[Scenario], jobs: int) -> Iterator[ScenarioOutcome]:
    """Run scenarios in `jobs` processes and yield their outcomes in order. Raise NoSuchMesh.

    With more than one job, traces come without lines.
    """
    if jobs == 1 or len(scenarios) < 2:
        yield from map(run_silently, scenarios)
        return
    # Not forked: a copied loop, terminal and threads would not work.
    context = multiprocessing.get_context("spawn")
    # A world of 30 sites takes 500 MB, and freed memory is not given back: so all processes are
    # replaced now and then. (max_tasks_per_child waits for ever in Python 3.11: gh-115634.)
    at_once = jobs * WORLDS_A_PROCESS
    for first in range(0, len(scenarios), at_once):
        block = scenarios[first : first + at_once]
        with ProcessPoolExecutor(
            min(jobs, len(block)), context, initializer=_end_with_parent
        ) as pool:
            try:
                yield from pool.map(run_silently, block)
            finally:
                pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process with its parent: a killed parent would leave it busy for hours."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def run_silently(scenario: Scenario) -> ScenarioOutcome:
    """Run a scenario without log records of its nodes."""
    with silence():
        return run(scenario)


def failure_kind(broken: str) -> str:
    """Return the kind of a failure: its invariant, or the first word."""
    found = _INVARIANT.match(broken)
    return found[0] if found else broken.partition(" ")[0]


def shrink(
    failing: ScenarioOutcome,
    run: Callable[[Scenario], ScenarioOutcome],
    may_go_on: Callable[[], bool],
) -> ScenarioOutcome:
    """Return the smallest world found that fails like `failing`, until `may_go_on` returns False.

    Leaving out a fault or the last messages changes nothing before them; another number of sites is
    another world altogether, which may or may not fail.
    """
    best = failing
    smaller = _smaller(best)
    while may_go_on():
        scenario = next(smaller, None)
        if scenario is None:
            return best
        outcome = run(scenario)
        if outcome.broken and failure_kind(outcome.broken) == failure_kind(failing.broken):
            best = outcome
            smaller = _smaller(best)
    return best


def _smaller(outcome: ScenarioOutcome) -> Iterator[Scenario]:
    """Yield scenarios that have less of something, much less first."""
    scenario = outcome.scenario
    for sites in range(FEWEST[scenario.topology], scenario.sites):
        yield replace(scenario, sites=sites)
    for slots in range(1, scenario.slots):
        yield replace(scenario, slots=slots)
    for nodes in range(1, scenario.nodes):
        yield replace(scenario, nodes=nodes)
    if scenario.best_effort > 1:
        yield replace(scenario, best_effort=1)
    for partitions in range(1, scenario.partitions):
        yield replace(scenario, partitions=partitions)
    if scenario.exchanges > 1:
        yield replace(scenario, exchanges=1)
    yield from _fewer_messages(scenario)
    yield from _fewer_faults(outcome)


def _fewer_messages(scenario: Scenario) -> Iterator[Scenario]:
    load = scenario.load
    published = load.messages if load.first is None else load.first
    tried = {published}
    for first in (published // 4, published // 2, published * 3 // 4, published - 1):
        if first > 0 and first not in tried:
            tried.add(first)
            yield replace(scenario, load=replace(load, first=first))


def _fewer_faults(outcome: ScenarioOutcome) -> Iterator[Scenario]:
    """Yield the scenario without the second half of its faults, the first, each quarter, ..."""
    scenario = outcome.scenario
    trouble = scenario.trouble
    struck = [one for one in range(1, outcome.faults + 1) if one not in trouble.without]
    size = len(struck)
    while size:
        for begin in range(len(struck) - size, -1, -size):
            gone = struck[begin : begin + size]
            yield replace(scenario, trouble=replace(trouble, without=trouble.without.union(gone)))
        size //= 2
