"""What has become of a measurement's messages so far: by pair of sites, and at the sites. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.bench.asked import Asked
from isthmus.load import Arrivals, Latencies

PERCENTS = (50, 90, 99)
NEARLY = 0.97
"""Of a rate that was asked for: what is less was not kept."""


@dataclass(frozen=True, slots=True)
class Published:
    """What one site has published: numbers of messages."""

    sent: int
    confirmed: int
    refused: frozenset[int]
    """Those that the broker refused or never answered for: they may arrive or not."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What came of one origin's messages to one site.

    `missing`: confirmed, and not there. `seconds`: from the beginning to the last arrival.
    """

    origin: str
    destination: str
    published: Published
    delivered: int
    missing: int
    flagged: int
    """Copies beyond the first that say that they may be some."""
    unflagged: int
    out_of_order: int
    seconds: float
    latencies: Latencies

    @property
    def per_second(self) -> float:
        return self.delivered / self.seconds if self.seconds > 0 else 0.0


def pair_of(
    origin: str,
    destination: str,
    published: Published,
    arrivals: Arrivals,
    latencies: Latencies,
    began_ns: int,
) -> Pair:
    """`began_ns`: when publishing began, by the clock of the arrivals."""
    return Pair(
        origin,
        destination,
        published,
        arrivals.delivered,
        arrivals.missing(published.sent, published.refused),
        arrivals.flagged_duplicates,
        arrivals.duplicates - arrivals.flagged_duplicates,
        arrivals.out_of_order,
        max(0, arrivals.last_at_ns - began_ns) / 1e9,
        latencies,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A whole measurement. `problems` say what kept it from being one."""

    asked: Asked
    published: Mapping[str, Published]
    published_s: Mapping[str, float]
    """How long each origin published, to the broker's last confirm. Seconds."""
    pairs: Sequence[Pair]
    strangers: int = 0
    """Other messages that came under the key."""
    busy: float = 0.0
    """What part of a core this program took while it published."""
    interrupted: bool = False
    problems: Sequence[str] = ()
    left_behind: Sequence[str] = ()
    """Queues that could not be deleted."""

    @property
    def published_bytes(self) -> int:
        """Of bodies, confirmed."""
        return self.asked.size * sum(one.confirmed for one in self.published.values())

    @property
    def out_of_order(self) -> int:
        return sum(pair.out_of_order for pair in self.pairs)

    def slower(self) -> list[str]:
        """The origins where less was published than was asked for."""
        wanted = self.asked.per_second
        if wanted is None:
            return []
        return [
            site
            for site, one in self.published.items()
            if one.sent < NEARLY * wanted * min(self.asked.duration_s, self.published_s[site])
        ]

    @property
    def missing(self) -> int:
        return sum(pair.missing for pair in self.pairs)

    @property
    def unflagged(self) -> int:
        return sum(pair.unflagged for pair in self.pairs)

    @property
    def all_arrived_once(self) -> bool:
        return not self.missing and not self.unflagged


def told_of(outcome: Outcome) -> dict[str, Any]:
    """What `--json` prints. Latencies in milliseconds, null of nothing."""
    asked = outcome.asked
    return {
        "exchange": asked.exchange.name,
        "key": asked.key,
        "size_bytes": asked.size,
        "per_second": asked.per_second,
        "duration_s": asked.duration_s,
        "queue_type": asked.queue_type.value,
        "published": {
            site: {
                "sent": one.sent,
                "confirmed": one.confirmed,
                "refused": len(one.refused),
                "seconds": round(outcome.published_s[site], 3),
                "per_second": _rate(one.confirmed, outcome.published_s[site]),
            }
            for site, one in outcome.published.items()
        },
        "pairs": [_pair_told(pair) for pair in outcome.pairs],
        "missing": outcome.missing,
        "duplicates_flagged": sum(pair.flagged for pair in outcome.pairs),
        "duplicates_unflagged": outcome.unflagged,
        "all_arrived_once": outcome.all_arrived_once,
        "other_messages": outcome.strangers,
        "rate_not_kept_at": outcome.slower(),
        "own_cpu": round(outcome.busy, 2),
        "interrupted": outcome.interrupted,
        "problems": list(outcome.problems),
        "queues_left": list(outcome.left_behind),
    }


def _pair_told(pair: Pair) -> dict[str, Any]:
    return {
        "from": pair.origin,
        "to": pair.destination,
        "sent": pair.published.sent,
        "confirmed": pair.published.confirmed,
        "delivered": pair.delivered,
        "missing": pair.missing,
        "duplicates_flagged": pair.flagged,
        "duplicates_unflagged": pair.unflagged,
        "out_of_order": pair.out_of_order,
        "seconds": round(pair.seconds, 3),
        "per_second": round(pair.per_second, 1),
        "latency_ms": latency_told(pair.latencies),
    }


def latency_told(latencies: Latencies) -> dict[str, float | None]:
    """Percentiles and the longest."""
    told = {f"p{percent}": latencies.percentile_ms(percent) for percent in PERCENTS}
    told["max"] = latencies.longest_ms if latencies.count else math.nan
    return {name: None if math.isnan(value) else round(value, 3) for name, value in told.items()}


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0
