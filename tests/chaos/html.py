"""The timeline as one HTML file that opens offline: no script, and nothing is fetched."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

from tests.chaos import chart
from tests.chaos.outcome import Outcome
from tests.chaos.world import ALL_GRAPHS, SITES

COUNTS = ("confirmed", "refused", "indeterminate")


def page(outcome: Outcome, seed: int, command: str) -> str:
    """All of it."""
    timeline = outcome.timeline
    strikes = list(timeline.strikes.values())
    ends = [strike.healed_s or strike.fault.ends_s for strike in strikes]
    healed_s = max(ends, default=0.0)
    last_s = max(healed_s, timeline.samples[-1].at_s if timeline.samples else 0.0)
    scale = chart.Scale(min(0.0, timeline.samples[0].at_s if timeline.samples else 0.0), last_s)
    most = chart.most_per_s(timeline.samples)
    text: str = (
        _templates()
        .get_template("chaos.html.j2")
        .render(
            seed=seed,
            command=command,
            broken=outcome.broken,
            sentence=_sentence(outcome),
            facts=_facts(outcome),
            ticks=scale.ticks(),
            rows=list(
                chart.rows(SITES, ALL_GRAPHS[outcome.graph], strikes, timeline.samples, scale)
            ),
            most=most,
            curves=[(site, chart.curves(site, timeline.samples, scale, most)) for site in SITES],
            healed=scale.at(healed_s),
            columns=(*COUNTS, "arrived", "copies flagged", "struck queue lacks"),
            accounts=list(_accounts(outcome)),
            faults=sorted(strikes, key=lambda one: one.fault.number),
        )
    )
    return text


def _templates() -> Environment:
    made = Environment(
        loader=ChoiceLoader(
            [FileSystemLoader(Path(__file__).parent), PackageLoader("spark_audit.report", ".")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["number"] = lambda value: f"{value:,}"
    made.filters["clock"] = lambda value: "never" if value is None else chart.clock(value)
    return made


def _sentence(outcome: Outcome) -> str:
    if outcome.broken:
        count = len(outcome.broken)
        return f"{count} promise{'s' if count > 1 else ''} did not hold"
    return "Every promise held: nothing lost, doubled, altered or out of order"


def _facts(outcome: Outcome) -> list[tuple[str, str]]:
    drain = outcome.drain
    confirmed = sum(counts["confirmed"] for counts in outcome.published.values())
    took = "not in time" if drain.took_s is None else f"{drain.took_s:g} s"
    return [
        ("four sites in a", outcome.graph),
        ("RabbitMQ", outcome.rabbitmq),
        ("messages confirmed", f"{confirmed:,}"),
        ("a second, while faults struck", f"{drain.live_per_s:.0f}"),
        ("behind when all was healed", f"{drain.backlog:,}"),
        ("drained within", took),
        ("allowed", f"{drain.deadline_s:.0f} s"),
    ]


def _accounts(outcome: Outcome) -> list[tuple[str, list[int]]]:
    account = outcome.account
    return [
        (
            site,
            [
                *(counts[name] for name in COUNTS),
                outcome.brought.get(site, 0),
                account.flagged.get(site, 0),
                account.destroyed.get(site, 0),
            ],
        )
        for site, counts in outcome.published.items()
    ]
