"""What earlier days left open, told in the report of this one: arrived, lost, or open as before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spark_audit.compare.premises import Premises
from spark_audit.compare.reading import Reading
from spark_audit.compare.reported_positions import reported_positions
from spark_audit.compare.waiting import told_waiting
from spark_audit.compare.whole_batches import expectations
from spark_audit.judge import verdicts
from spark_audit.ledgers.source import LedgerSource
from spark_audit.level import Level
from spark_audit.nights.came_again import SAME
from spark_audit.nights.open_messages import left_open, looked_at_again, without_rows
from spark_audit.report.carried import Carried
from spark_audit.report.report import AuditReport
from spark_audit.report.shown import shown


def carried_over(
    report: AuditReport,
    premises: Premises,
    source: LedgerSource,
    table: Any,
    left: Any,
    say: Callable[[str], None],
) -> AuditReport:
    """The report with what became of `left` (`open_messages.SCHEMA`). `premises`: of the time from
    its first message on. `table`: the digest of all files that were opened.
    """
    keep = premises.keep
    left = keep(left)
    expected = expectations(premises, table)
    reading = Reading(premises, source, table, reported_positions(premises, table))
    is_exact = premises.level is Level.EXACT
    judged = looked_at_again(reading, expected.table, left, say, in_order=is_exact)
    gone = keep(without_rows(left, judged))
    again = report.carried.findings if report.carried else {}
    found = verdicts.findings_of(judged)
    if again:  # what was open and came twice was found as what came again, too
        told = report.table.select(*SAME).distinct()
        found = found.join(told, [*SAME], "left_anti").select(*found.columns)
    found = keep(found)
    findings = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
    carried = Carried(
        days=_days(judged, gone),
        findings=dict(Counter(again) + Counter(findings)),
        waiting=told_waiting(premises, source, judged),
    )
    all_found = keep(report.table.unionByName(found, allowMissingColumns=True))
    return replace(
        report,
        carried=carried,
        table=all_found,
        findings=dict(Counter(report.findings) + Counter(findings)),
        shown=shown(all_found) if findings else report.shown,
        left=keep(
            report.left.unionByName(left_open(judged)).unionByName(gone.select(*left.columns))
        ),
    )


def _days(judged: Any, gone: Any) -> dict[str, Counter[str]]:
    """By day of publishing and verdict."""
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
