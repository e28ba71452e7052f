"""Makes a failing world smaller for as long as it fails in the same way. Pure, but for the runs.

Leaving out a fault or the last messages changes nothing before that; another number of sites is
another world altogether, in which the same thing may go wrong or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulation.scenario import Outcome, Scenario
from simulation.topologies import FEWEST

_INVARIANT = re.compile(r"I\d")


def way(broken: str) -> str:
    """In which way something did not hold: the invariant, or the first word."""
    found = _INVARIANT.match(broken)
    return found[0] if found else broken.partition(" ")[0]


def shrink(
    failing: Outcome, run: Callable[[Scenario], Outcome], may_go_on: Callable[[], bool]
) -> Outcome:
    """The smallest that was found before `may_go_on` said no; `failing` itself at the least."""
    best = failing
    smaller = _smaller(best)
    while may_go_on():
        scenario = next(smaller, None)
        if scenario is None:
            return best
        outcome = run(scenario)
        if outcome.broken and way(outcome.broken) == way(failing.broken):
            best = outcome
            smaller = _smaller(best)
    return best


def _smaller(outcome: Outcome) -> Iterator[Scenario]:
    """Scenarios that have less of something, those with much less first."""
    scenario = outcome.scenario
    for sites in range(FEWEST[scenario.topology], scenario.sites):
        yield replace(scenario, sites=sites)
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


def _fewer_faults(outcome: Outcome) -> Iterator[Scenario]:
    """Without the second half of those that struck, the first, each quarter, and so on."""
    scenario = outcome.scenario
    trouble = scenario.trouble
    struck = [one for one in range(1, outcome.faults + 1) if one not in trouble.without]
    size = len(struck)
    while size:
        for begin in range(len(struck) - size, -1, -size):
            gone = struck[begin : begin + size]
            yield replace(scenario, trouble=replace(trouble, without=trouble.without.union(gone)))
        size //= 2
