"""`make chaos` in short: whatever strikes four sites on real brokers, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.chaos import report
from tests.chaos.run import run
from tests.chaos.schedule import KINDS, USUAL, draw, kinds_of
from tests.chaos.world import ALL_GRAPHS, GROUP, SITES

BRIEF = tuple(name for name in USUAL if KINDS[name].on != "mesh" and not name.startswith("hang"))
"""What hangs, and what is done to logs, takes longer than all of the short edition."""

NODES = kinds_of(nodes=True)


@pytest.mark.parametrize(
    ("graph", "seed", "within_s", "kinds"),
    [
        pytest.param("ring", 149, 26.0, BRIEF, id="half a minute", marks=pytest.mark.slow),
        pytest.param("ring", 1, 240.0, USUAL, id="ring", marks=pytest.mark.long),
        pytest.param("line", 2, 240.0, USUAL, id="line", marks=pytest.mark.long),
        pytest.param("ring", 3, 300.0, NODES, id="nodes", marks=pytest.mark.long),
        pytest.param(GROUP, 4, 240.0, kinds_of(group=True), id="group", marks=pytest.mark.long),
    ],
)
async def test_whatever_strikes_four_sites_no_promise_is_broken(
    tmp_path: Path,
    rabbitmq: RabbitMQInstallation,
    graph: str,
    seed: int,
    within_s: float,
    kinds: tuple[str, ...],
) -> None:
    schedule = draw(seed, within_s, SITES, ALL_GRAPHS[graph], kinds)
    outcome = await run(
        tmp_path,
        rabbitmq,
        graph,
        schedule,
        seed=seed,
        per_second=24.0,
        say=print,
        seen=lambda _: None,
        several_nodes=kinds == NODES,
    )
    print("\n".join(report.lines(outcome)))
    assert outcome.broken == []
    assert all(strike.healed_s is not None for strike in outcome.timeline.strikes.values())
    confirmed = sum(counts["confirmed"] for counts in outcome.published.values())
    assert min(outcome.brought.values()) >= confirmed > 0
