"""Figures of a measurement: by pair of sites and by origin. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.bench.request import BenchRequest
from isthmus.load.sink import Arrivals, Latencies

PERCENTS = (50, 90, 99)
NEARLY = 0.97
"""Part of the requested rate below which the rate counts as not kept."""


@dataclass(frozen=True, slots=True)
class Published:
    """Counts of messages published at one site."""

    sent: int
    confirmed: int
    refused: frozenset[int]
    """Numbers of messages that were refused or never confirmed, and may arrive or not."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Result of one origin's messages at one destination.

    `missing` counts confirmed messages that did not arrive; `seconds` runs from the beginning to
    the last arrival.
    """

    origin: str
    destination: str
    published: Published
    delivered: int
    missing: int
    flagged: int
    """Duplicates with the redelivery header."""
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
    """Combine both ends' counts; `began_ns` is the start of publishing by the clock of the
    arrivals.
    """
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
class BenchResult:
    """Result of a whole measurement; `problems` lists what spoiled it."""

    request: BenchRequest
    published: Mapping[str, Published]
    published_s: Mapping[str, float]
    """Seconds from the beginning to the last confirm, by origin."""
    pairs: Sequence[Pair]
    strangers: int = 0
    """Foreign messages that arrived under the key."""
    busy: float = 0.0
    """Part of a core that this process used while publishing."""
    interrupted: bool = False
    problems: Sequence[str] = ()
    left_behind: Sequence[str] = ()
    """Queues that could not be deleted."""

    @property
    def published_bytes(self) -> int:
        """Bytes of confirmed bodies."""
        return self.request.size * sum(one.confirmed for one in self.published.values())

    @property
    def out_of_order(self) -> int:
        return sum(pair.out_of_order for pair in self.pairs)

    def slower(self) -> list[str]:
        """Return the origins that did not keep the requested rate."""
        wanted = self.request.per_second
        if wanted is None:
            return []
        return [
            site
            for site, one in self.published.items()
            if one.sent < NEARLY * wanted * min(self.request.duration_s, self.published_s[site])
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


def report_of(result: BenchResult) -> dict[str, Any]:
    """Return the object that `--json` prints: latencies in milliseconds, null without messages."""
    request = result.request
    return {
        "exchange": request.exchange.name,
        "key": request.key,
        "size_bytes": request.size,
        "per_second": request.per_second,
        "duration_s": request.duration_s,
        "queue_type": request.queue_type.value,
        "published": {
            site: {
                "sent": one.sent,
                "confirmed": one.confirmed,
                "refused": len(one.refused),
                "seconds": round(result.published_s[site], 3),
                "per_second": _rate(one.confirmed, result.published_s[site]),
            }
            for site, one in result.published.items()
        },
        "pairs": [_pair_report(pair) for pair in result.pairs],
        "missing": result.missing,
        "duplicates_flagged": sum(pair.flagged for pair in result.pairs),
        "duplicates_unflagged": result.unflagged,
        "all_arrived_once": result.all_arrived_once,
        "other_messages": result.strangers,
        "rate_not_kept_at": result.slower(),
        "own_cpu": round(result.busy, 2),
        "interrupted": result.interrupted,
        "problems": list(result.problems),
        "queues_left": list(result.left_behind),
    }


def _pair_report(pair: Pair) -> dict[str, Any]:
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
        "latency_ms": latency_report(pair.latencies),
    }


def latency_report(latencies: Latencies) -> dict[str, float | None]:
    """Return percentiles and maximum in milliseconds; null without messages."""
    report = {f"p{percent}": latencies.percentile_ms(percent) for percent in PERCENTS}
    report["max"] = latencies.longest_ms if latencies.count else math.nan
    return {name: None if math.isnan(value) else round(value, 3) for name, value in report.items()}


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0
