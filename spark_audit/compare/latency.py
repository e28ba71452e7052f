"""Latencies of messages: from publishing to delivery, and on each hop between.

A step within a site is measured by its own clock. A link is measured by two clocks, from the
arrival in one site's log to the arrival in the next; a delivery likewise, from the origin's taking
the message off its exchange. Both are as right as the clocks are. (The sender's own clock is no
better: a neighbour acknowledges only now and then.)

The first, middle and last message stand for a row, and times keep three digits, so that a day costs
as many values as rows, and little memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

from spark_audit.compare import batches
from spark_audit.compare.entries import offset_at
from spark_audit.period import Period

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_TIMED = 250_000
"""Approximate number of rows, over all stages, whose times are measured."""
_MINUTE_MS = 60_000
_MESSAGES = "kind IN ('messages', 'fragment', 'repair')"
_MOST_TIMES = 200
"""Most minutes listed to Spark in a filter."""
_PARTS_OF_AN_HOUR = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)


@dataclass(frozen=True, slots=True)
class MinuteSample:
    """Sample of one minute in `every`, for days whose full measurement would cost more than the
    audit; 1 takes every minute.
    """

    every: int

    @classmethod
    def of(cls, rows: int) -> Self:
        """Return the sample of about MOST_TIMED out of `rows`."""
        wide = (one for one in _PARTS_OF_AN_HOUR if rows <= one * MOST_TIMED)
        return cls(next(wide, _PARTS_OF_AN_HOUR[-1]))

    def holds(self, ms: str = "first_ms") -> str:
        """Return SQL: true if a row is of a sampled minute. `ms`: time of first publishing."""
        return f"{ms} DIV 60000 % {self.every} = {self.every // 2}"

    def times(self, period: Period) -> str:
        """Return SQL that filters file rows to sampled minutes of the period, by constants that
        Spark compares with a file's statistics to skip row groups. With many minutes the filter is
        wider: combine with `holds`.
        """
        first = -(-(period.from_ms // _MINUTE_MS - self.every // 2) // self.every)
        minutes = range(
            first * self.every + self.every // 2, -(-period.to_ms // _MINUTE_MS), self.every
        )
        if len(minutes) > _MOST_TIMES or self.every == 1:
            return _published(period.from_ms, period.to_ms)
        return (
            " OR ".join(
                _published(
                    max(period.from_ms, minute * _MINUTE_MS),
                    min(period.to_ms, (minute + 1) * _MINUTE_MS),
                )
                for minute in minutes
            )
            or "false"
        )

    def is_in_file(self) -> str:
        """Return SQL: true if a digest row may have sampled rows. Links' files have only a range of
        publishing times, which is tested for a sampled minute.
        """
        every, nth = self.every, self.every // 2
        last = f"(last_ms DIV 60000 - {nth}) DIV {every} * {every} + {nth}"
        return f"""
            first_minute % {every} = {nth}
            OR (stage IN ('linked_in', 'linked_out') AND {last} >= first_ms DIV 60000)
        """


class Way(StrEnum):
    """Measured step, in travelling order."""

    PACKING = "packing"
    """Time from a batch's first message to its entry in the origin's log."""
    LINK = "link"
    """Time from one site's log to the next site's."""
    SETTLING = "settling"
    """Time from a site's log to its broker."""
    DELIVERY = "delivery"
    """Time from publishing to the confirm at a destination."""


class Latency(NamedTuple):
    """Percentiles of one step between two sites, or at one site (`source` is `target` then), by
    site name. `p50_ms`: half of the messages took no longer; negative if two clocks differ.
    """

    way: Way
    source: str
    target: str
    messages: int
    p50_ms: int
    p90_ms: int
    p99_ms: int
    most_ms: int


def timed(rows: DataFrame, cluster_of: Column, from_ms: int, to_ms: int) -> DataFrame:
    """Return the columns that `deliveries` and `hops` share, of batches published in the period, in
    one reading. `rows`: stages `packed`, `linked_in`, `delivered`. `cluster_of`: cluster ID as an
    expression.
    """
    series, _, _ = batches.NAME
    times = f"array({_sample('0')}, {_sample('(count DIV 2)')}, {_sample('(count - 1)')})"
    return (
        rows.where(f"event = 'batch' AND {_MESSAGES}")
        .withColumn("at", cluster_of)
        .selectExpr(
            *(series, "sequence", *batches.HEADER, "site", "at", "stage", "neighbour", "count"),
            *("outcomes", "published", "delivered"),
        )
        .where(f"first_ms >= {from_ms} AND last_ms < {to_ms}")
        .selectExpr(
            *("series", "sequence", "origin", "site", "at", "stage", "neighbour", "is_repair"),
            *("count", "first_ms", "recorded_ms"),
            f"CASE WHEN stage = 'delivered' AND count > 0 THEN {times} END AS some",
        )
    )


def deliveries(timed_rows: DataFrame) -> DataFrame:
    """Return (way, source, target, ms, thirds) of `timed`, sites as cluster IDs. `thirds`: thirds
    of a message that the row stands for. An origin's own deliveries have another outcome and are
    left out.
    """
    return (
        timed_rows.where("some IS NOT NULL AND NOT is_repair")
        .selectExpr("origin", "at", "count", "explode(some) AS one")
        .where("one.outcome = 1")
        .selectExpr(
            f"'{Way.DELIVERY}' AS way",
            "origin AS source",
            "at AS target",
            "one.ms AS ms",
            "CAST(count AS BIGINT) AS thirds",
        )
    )


def hops(timed_rows: DataFrame) -> DataFrame:
    """Return (way, source, target, ms, thirds) of packing, links and settling, sites by name."""
    came = (
        timed_rows.where("stage IN ('packed', 'linked_in')")
        .groupBy("series", "sequence", "site")
        .agg(
            *_aggregates("min(recorded_ms) AS came_ms", "bool_or(stage = 'packed') AS is_origin"),
        )
        .withColumnRenamed("site", "source")
    )
    return (
        timed_rows.selectExpr(
            *("series", "sequence", "count", "recorded_ms", "first_ms", "site AS target"),
            f"""CASE stage WHEN 'packed' THEN '{Way.PACKING}' WHEN 'linked_in' THEN '{Way.LINK}'
                    ELSE '{Way.SETTLING}' END AS way""",
            "CASE WHEN stage = 'linked_in' THEN neighbour ELSE site END AS source",
        )
        .join(came, ["series", "sequence", "source"])
        # An origin settles its own messages without delivering them.
        .where(f"NOT (is_origin AND way = '{Way.SETTLING}')")
        .selectExpr(
            *("way", "source", "target"),
            f"recorded_ms - CASE WHEN way = '{Way.PACKING}' THEN first_ms ELSE came_ms END AS ms",
            "3 * CAST(count AS BIGINT) AS thirds",
        )
    )


def percentiles(samples: DataFrame) -> list[Latency]:
    """Return percentiles of each (way, source, target), the busiest first."""
    step = "pow(10, greatest(floor(log10(greatest(abs(ms), 1))) - 2, 0))"
    found = (
        samples.selectExpr(
            *("way", "source", "target", "thirds"),
            f"CAST(round(ms / {step}) * {step} AS BIGINT) AS ms",
        )
        .groupBy("way", "source", "target", "ms")
        .agg(*_aggregates("sum(thirds) AS thirds"))
        .groupBy("way", "source", "target")
        .agg(
            *_aggregates(
                "CAST(round(sum(thirds) / 3) AS BIGINT) AS messages",
                "percentile(ms, array(0.5, 0.9, 0.99), thirds) AS at",
                "max(ms) AS most",
            )
        )
    )
    latencies = [
        Latency(
            Way(row["way"]),
            row["source"],
            row["target"],
            row["messages"],
            round(row["at"][0]),
            round(row["at"][1]),
            round(row["at"][2]),
            row["most"],
        )
        for row in found.collect()
    ]
    ways = list(Way)
    return sorted(
        latencies, key=lambda one: (ways.index(one.way), -one.messages, one.source, one.target)
    )


def _published(from_ms: int, to_ms: int) -> str:
    """Return SQL over file columns with constants, which Spark compares with statistics."""
    return (
        f"(first_published >= timestamp_millis({from_ms})"
        f" AND first_published < timestamp_millis({to_ms}))"
    )


def _sample(entry: str) -> str:
    outcome = f"CAST(conv(hex(substring(outcomes, {entry} + 1, 1)), 16, 10) AS INT) & 15"
    came = f"recorded_ms + coalesce({offset_at('delivered', entry)}, 0)"
    published = f"first_ms + coalesce({offset_at('published', entry)}, 0)"
    return f"named_struct('outcome', {outcome}, 'ms', {came} - ({published}))"


def _aggregates(*expressions: str) -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812

    return [F.expr(one) for one in expressions]
