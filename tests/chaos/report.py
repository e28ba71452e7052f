"""A run told: in lines for a terminal, and as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos import html
from tests.chaos.outcome import Outcome


def lines(outcome: Outcome) -> Iterator[str]:
    """What came of it."""
    for site, counts in outcome.published.items():
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        brought = outcome.brought.get(site, 0)
        flagged = outcome.account.flagged.get(site, 0)
        lost = outcome.account.destroyed.get(site, 0)
        yield (
            f"{site}: published {said}; {brought} messages there, {flagged} copies flagged; "
            f"its struck queue lacks {lost}"
        )
    drain = outcome.drain
    yield (
        f"drained: {drain.took_s} s for {drain.backlog} messages, "
        f"{drain.deadline_s:.0f} s allowed at {drain.live_per_s:.0f} a second"
    )
    for one in outcome.broken:
        yield f"BROKEN {one}"
    if not outcome.broken:
        yield "every promise held"


def as_json(outcome: Outcome, seed: int, command: str) -> dict[str, Any]:
    """All of it; times in seconds since the first fault might strike."""
    drain = outcome.drain
    return {
        "seed": seed,
        "command": command,
        "graph": outcome.graph,
        "rabbitmq": outcome.rabbitmq,
        "broken": outcome.broken,
        "schedule": [fault.as_json() for fault in outcome.schedule],
        "faults": [strike.as_json() for strike in outcome.timeline.strikes.values()],
        "samples": [sample.as_json() for sample in outcome.timeline.samples],
        "published": outcome.published,
        "brought": outcome.brought,
        "flagged": outcome.account.flagged,
        "struck_queues_lack": outcome.account.destroyed,
        "drain": {
            "backlog": drain.backlog,
            "live_per_s": round(drain.live_per_s, 1),
            "deadline_s": round(drain.deadline_s, 1),
            "took_s": drain.took_s,
        },
    }


def write(outcome: Outcome, out: Path, seed: int, command: str) -> list[Path]:
    """The files that were written into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    told = out / "timeline.json"
    told.write_text(json.dumps(as_json(outcome, seed, command), indent=1))
    shown = out / "timeline.html"
    shown.write_text(html.page(outcome, seed, command))
    return [told, shown]
