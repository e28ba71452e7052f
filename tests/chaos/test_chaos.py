"""The short edition of `make chaos`: whatever strikes in half a minute, nothing is lost."""

from __future__ import annotations

from pathlib import Path

from isthmus.local_brokers import RabbitMQInstallation
from tests.chaos import report
from tests.chaos.run import run
from tests.chaos.schedule import KINDS, draw
from tests.chaos.world import PAIRS, SITES

SEED = 29
FAULTS_S = 28.0
TOO_LONG = ("hang node", "hang broker")


async def test_what_strikes_four_sites_in_half_a_minute_breaks_no_promise(
    tmp_path: Path, rabbitmq: RabbitMQInstallation
) -> None:
    kinds = [kind for kind in KINDS if kind not in TOO_LONG]
    schedule = draw(SEED, FAULTS_S, SITES, PAIRS, kinds)
    outcome = await run(
        tmp_path, rabbitmq, schedule, seed=SEED, per_second=24.0, say=print, seen=lambda _: None
    )
    print("\n".join(report.lines(outcome)))
    assert outcome.broken == []
    assert all(strike.healed_s is not None for strike in outcome.timeline.strikes.values())
    confirmed = sum(counts["confirmed"] for counts in outcome.published.values())
    assert min(outcome.brought.values()) >= confirmed > 0
