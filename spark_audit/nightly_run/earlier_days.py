"""Additions of earlier days to a night's report: open messages, and messages delivered again.

A message belongs to the day of its first publishing, whose night may have run before a second copy
came: in another batch packed since, or in a row that a deliverer wrote since. Copies are looked for
of messages published within the outage window before the day, in which the barrier promises no
duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_audit.compare import entries
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.levels import IDENTITIES_AT_ONCE
from spark_audit.compare.opened_batches import NAME
from spark_audit.compare.reading import LedgerReading
from spark_audit.compare.reported_positions import reported_positions
from spark_audit.compare.waiting import pending_places
from spark_audit.compare.whole_batches import compared_whole, expectations
from spark_audit.judge import verdicts
from spark_audit.ledgers.source import LedgerSource
from spark_audit.level import Level
from spark_audit.nightly_run.open_messages import left_open, looked_at_again, without_rows
from spark_audit.period import Period
from spark_audit.report.report import AuditReport, EarlierDays
from spark_audit.report.tables import displayed_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FINDINGS_SCHEMA = "kind STRING, identity STRING, origin STRING, destination STRING, exchange STRING"
"""Columns read from the table `findings`."""
SAME = ("kind", "identity", "origin", "destination", "exchange")
"""Columns by which two findings are the same."""


def with_leaks_since(
    report: AuditReport,
    assumptions: Assumptions,
    source: LedgerSource,
    table: DataFrame,
    unseen: Collection[str],
    known: DataFrame | None,
    say: Callable[[str], None],
) -> AuditReport:
    """Add messages of earlier days that were delivered again. `table`: digest of the day's files;
    `unseen`: URIs of files that no night has opened; `known`: findings of earlier nights
    (FINDINGS_SCHEMA), or None.
    """
    found = report.leaked_before
    since = _leaked_since(assumptions, source, table, unseen, say)
    if since is not None:
        found = since if found is None else found.unionByName(since)
    if found is None:
        return report
    # A barrier need not remember a message for longer than the outage window.
    kept_ms = round(assumptions.mesh.retention_s * 1000)
    leaked = verdicts.findings_of(found.where(f"again_ms - delivered_ms <= {kept_ms}"))
    leaked = leaked.where("kind = 'leaked duplicate'").dropDuplicates([*SAME])
    if known is not None:
        leaked = leaked.join(known, [*SAME], "left_anti")
    leaked = assumptions.keep(leaked.select(*report.table.columns))
    count = leaked.count()
    if not count:
        return report
    more = Counter({"leaked duplicate": count})
    carried = report.carried or EarlierDays()
    carried.findings = dict(Counter(carried.findings) + more)
    all_found = assumptions.keep(report.table.unionByName(leaked))
    return replace(
        report,
        carried=carried,
        table=all_found,
        findings=dict(Counter(report.findings) + more),
        shown=displayed_findings(all_found),
    )


def _leaked_since(
    assumptions: Assumptions,
    source: LedgerSource,
    table: DataFrame,
    unseen: Collection[str],
    say: Callable[[str], None],
) -> DataFrame | None:
    """Return judged messages that came more than once, of batches packed before the day and written
    by a deliverer since, or None.
    """
    from pyspark.sql import functions as F  # noqa: N812

    keep = assumptions.keep
    before = f"first_ms < {assumptions.period.from_ms}"
    late = table.where(
        f"stage = 'delivered' AND event = 'batch' AND is_message AND {before}"
    ).where(F.col("uri").isin(*unseen) if unseen else F.lit(False))
    uris = {row["uri"] for row in late.select("uri").distinct().collect()}
    if not uris:
        return None
    say("looking for what was delivered again")
    kept_ms = round(assumptions.mesh.retention_s * 1000)
    from_ms = assumptions.period.from_ms
    earlier = replace(assumptions, period=Period(from_ms - kept_ms, from_ms))
    reading = LedgerReading(earlier, source, table, reported_positions(earlier, table))
    rows = reading.settled(uris).where(f"event = 'batch' AND {before}")
    names = keep(rows.select(*NAME).distinct())
    twice = _twice(reading, names)
    if assumptions.level is Level.EXACT:
        twice = twice.unionByName(_sharing(reading, rows, names)).distinct()
    odd = keep(twice)
    if not odd.head(1):
        return None
    packed = reading.packed().join(odd, [*NAME], "left_semi")
    settled = reading.settled().join(odd, [*NAME], "left_semi")
    expected = expectations(earlier, table)
    whole = keep(compared_whole(earlier, source, packed, settled, expected.table))
    return reading.opened(whole, odd, reading.settled(set()))


def _twice(reading: LedgerReading, names: DataFrame) -> DataFrame:
    """Return the batches of which a site settled more messages than were packed."""
    from pyspark.sql import functions as F  # noqa: N812

    sent = reading.packed().where("piece = 0").join(names, [*NAME], "left_semi")
    came = reading.settled().where("event = 'batch'").join(names, [*NAME], "left_semi")
    return (
        came.groupBy(*NAME, "at")
        .agg(F.sum("count").alias("came"))
        .join(sent.groupBy(*NAME).agg(F.sum("count").alias("sent")), [*NAME])
        .where("came > sent")
        .select(*NAME)
        .distinct()
    )


def _sharing(reading: LedgerReading, rows: DataFrame, names: DataFrame) -> DataFrame:
    """Return batches that share an identity with a batch of `names`, whose rows are `rows`."""
    by_origin = reading.assumptions.by_origin
    keep = reading.assumptions.keep
    packed = reading.packed()
    mine = keep(entries.known_as_of(entries.settled_entries(rows, by_origin), by_origin).distinct())
    there = keep(reading.with_identities(packed, mine).unionByName(names).distinct())
    if not there.join(names, [*NAME], "left_anti").head(1):
        return names.where("false")
    packed = packed.join(there, [*NAME], "left_semi")
    none = reading.settled(set())
    parts = reading.messages_packed() // IDENTITIES_AT_ONCE + 1
    shared = keep(entries.repeated_identities(packed, none, by_origin, parts))
    return reading.with_identities(packed, shared)


def carried_over(
    report: AuditReport,
    assumptions: Assumptions,
    source: LedgerSource,
    table: DataFrame,
    left: DataFrame,
    say: Callable[[str], None],
) -> AuditReport:
    """Add the outcome of `left` (`open_messages.SCHEMA`) to the report. `assumptions` cover the
    time from its first message on. `table`: digest of all opened files.
    """
    keep = assumptions.keep
    left = keep(left)
    expected = expectations(assumptions, table)
    reading = LedgerReading(assumptions, source, table, reported_positions(assumptions, table))
    is_exact = assumptions.level is Level.EXACT
    judged = looked_at_again(reading, expected.table, left, say, in_order=is_exact)
    gone = keep(without_rows(left, judged))
    again = report.carried.findings if report.carried else {}
    found = verdicts.findings_of(judged)
    if again:  # an open message that came twice is among the leaked ones already
        reported = report.table.select(*SAME).distinct()
        found = found.join(reported, [*SAME], "left_anti").select(*found.columns)
    found = keep(found)
    findings = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    carried = EarlierDays(
        days=_days(judged, gone),
        findings=dict(Counter(again) + Counter(findings)),
        waiting=pending_places(assumptions, source, judged),
    )
    all_found = keep(report.table.unionByName(found, allowMissingColumns=True))
    return replace(
        report,
        carried=carried,
        table=all_found,
        findings=dict(Counter(report.findings) + Counter(findings)),
        shown=displayed_findings(all_found) if findings else report.shown,
        left=keep(
            report.left.unionByName(left_open(judged)).unionByName(gone.select(*left.columns))
        ),
    )


def _days(judged: DataFrame, gone: DataFrame) -> dict[str, Counter[str]]:
    """Count messages by day of publishing and verdict."""
    by_day = (
        judged.selectExpr("timestamp_millis(published_ms) AS published", "verdict")
        .unionByName(gone.select("published", "verdict"))
        .selectExpr("CAST(to_date(published) AS STRING) AS day", "verdict")
        .groupBy("day", "verdict")
        .count()
    )
    found: dict[str, Counter[str]] = {}
    for day, verdict, count in by_day.collect():
        found.setdefault(day, Counter())[verdict] += count
    return found
