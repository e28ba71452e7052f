"""State that a night takes over from earlier nights: read from their tables, checked, merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_audit.frames import small_table
from spark_audit.judge.positions import SeenIncarnation
from spark_audit.ledgers.books import FileRows
from spark_audit.ledgers.files import LedgerPath
from spark_audit.nightly_run import open_messages, tables
from spark_audit.nightly_run.earlier_days import FINDINGS_SCHEMA
from spark_audit.nightly_run.night import (
    Night,
    OpenDay,
    carried_since,
    skipped,
    speakers,
    still_open,
)
from spark_audit.nightly_run.plan import KnownFile
from spark_audit.nightly_run.tables import DamagedTables, NightTables
from spark_audit.report.report import AuditReport

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FILES_SCHEMA = """
    uri STRING, size BIGINT, site STRING, state STRING, stage STRING, first BIGINT, last BIGINT,
    rows BIGINT, from_ms BIGINT, to_ms BIGINT, is_held BOOLEAN, is_end BOOLEAN
"""
"""Columns of the table `files`. Nights of former versions lack `is_end`: their files ended no state
in order."""
NIGHTS_SCHEMA = """
    ran TIMESTAMP, verdict STRING, sentence STRING, mesh STRING, revision STRING, level STRING,
    ledger STRING, findings BIGINT, open BIGINT, kept STRING
"""


@dataclass(slots=True)
class NightHistory:
    """State of earlier nights. `left`: open messages (`open_messages.SCHEMA`), or None;
    `oldest_ms`: first publishing time among them. `known`: URI -> description of a file that every
    speaking night has opened. `given_up`: day -> number of open messages too old to look for.
    """

    since: str = ""
    left: DataFrame | None = None
    oldest_ms: int | None = None
    known: dict[str, KnownFile] = field(default_factory=dict)
    bad: dict[str, int] = field(default_factory=dict)
    """URI -> size of unreadable files, which are tried again."""
    open_days: list[OpenDay] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    incarnations: list[SeenIncarnation] = field(default_factory=list)
    given_up: dict[str, int] = field(default_factory=dict)
    findings: DataFrame | None = None
    """Findings of earlier nights (`earlier_days.FINDINGS_SCHEMA`), or None on the first night."""


def read_history(
    store: NightTables, day: str, retention_s: float, reported: Iterable[str] = ()
) -> NightHistory:
    """Return the state before `day`. `reported`: days that have a report, which therefore had
    tables.
    """
    since = carried_since(day, retention_s)
    there = {one for table in tables.TABLES for one in store.days(table)}
    days = sorted(one for one in there if one < day)
    # A day more than is looked at, for the messages that have to be given up.
    recent = days[-1:] + [one for one in days[:-1] if one >= since]
    good: dict[str, Night] = {}
    damaged: dict[str, str] = {
        one: "has a report, and its tables are missing"
        for one in reported
        if since <= one < day and one not in there
    }
    for one in sorted(recent):
        try:
            good[one] = _night(store, one)
        except DamagedTables as error:
            damaged[one] = str(error)
    while True:
        spoken = speakers(good.values(), day)
        try:
            found = _put_together(store, day, spoken, damaged, days, since)
            found.findings = _earlier_findings(store, good)
            return found
        except DamagedTables as error:
            damaged[error.day] = str(error)
            del good[error.day]


def _put_together(
    store: NightTables,
    day: str,
    spoken: list[tuple[Night, str]],
    damaged: dict[str, str],
    days: list[str],
    since: str,
) -> NightHistory:
    """Merge the nights that speak for earlier days. Raises DamagedTables."""
    found = NightHistory(since=spoken[-1][0].day if spoken else "")
    left = None
    known: dict[str, KnownFile] | None = None
    for night, after in spoken:
        if store.count(tables.PENDING, night.day, open_messages.SCHEMA) != night.open:
            raise DamagedTables(night.day, f"do not have {night.open} rows in {tables.PENDING}")
        rows = store.read(tables.PENDING, night.day, open_messages.SCHEMA)
        rows = rows.where(
            f"series IS NOT NULL AND to_date(published) > DATE '{after or '1970-01-01'}'"
            f" AND to_date(published) <= DATE '{night.day}'"
        )
        left = rows if left is None else left.unionByName(rows)
        files, bad = read_files(store, night.day)
        known = _known_to_both(known, files)
        found.bad.update(bad)
        found.incarnations += night.incarnations
    found.known = known or {}
    if left is not None:
        _take(found, left, since)
    open_days = {one.day: one for one in still_open(spoken) if one.day >= since}
    open_days.update((one, OpenDay(one, why)) for one, why in damaged.items())
    found.open_days = sorted(open_days.values(), key=lambda one: one.day)
    known_days = {*days, *(one.day for one in found.open_days)}
    found.skipped = skipped(known_days, day, since)
    return found


def _earlier_findings(store: NightTables, days: Iterable[str]) -> DataFrame | None:
    """Return the findings of these days, or None. Raises DamagedTables."""
    findings = None
    for day in sorted(days):
        store.count(tables.FINDINGS, day, FINDINGS_SCHEMA)
        rows = store.read(tables.FINDINGS, day, FINDINGS_SCHEMA)
        findings = rows if findings is None else findings.unionByName(rows)
    return findings


def _take(found: NightHistory, left: DataFrame, since: str) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    by_day = left.groupBy(F.to_date("published").cast("string").alias("day")).agg(
        F.count("*").alias("count"), F.min(F.expr("unix_millis(published)")).alias("ms")
    )
    oldest = None
    for one, count, ms in by_day.collect():
        if one < since:
            found.given_up[one] = count
        else:
            oldest = ms if oldest is None else min(oldest, ms)
    if oldest is not None:
        found.left = left.where(f"to_date(published) >= DATE '{since}'")
        found.oldest_ms = oldest


def _night(store: NightTables, day: str) -> Night:
    rows = store.collect(tables.NIGHTS, day, NIGHTS_SCHEMA)
    try:
        row = rows[0]
        ran_ms = round(row["ran"].timestamp() * 1000)
        return Night.of(day, ran_ms, row["verdict"], row["findings"], row["open"], row["kept"])
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedTables(day, f"cannot be understood: {error!r}") from error


def read_files(store: NightTables, day: str) -> tuple[dict[str, KnownFile], dict[str, int]]:
    """Return the readable files, and the sizes of the unreadable ones. Raises DamagedTables."""
    found: dict[str, KnownFile] = {}
    bad: dict[str, int] = {}
    for row in store.collect(tables.FILES, day, FILES_SCHEMA):
        if not row["rows"]:
            bad[row["uri"]] = row["size"]
            continue
        file = found.setdefault(row["uri"], KnownFile(row["size"], [], row["is_held"]))
        file.rows.append(
            FileRows(
                uri=row["uri"],
                site=row["site"],
                state=row["state"],
                stage=row["stage"],
                first=row["first"],
                last=row["last"],
                count=row["rows"],
                from_ms=row["from_ms"],
                to_ms=row["to_ms"],
                is_end=bool(row["is_end"]),
            )
        )
    return found, bad


def _known_to_both(
    one: dict[str, KnownFile] | None, other: dict[str, KnownFile]
) -> dict[str, KnownFile]:
    """Return the files that both have opened."""
    if one is None:
        return other
    for uri in one.keys() & other.keys():
        other[uri].is_held |= one[uri].is_held
    return {uri: other[uri] for uri in one.keys() & other.keys()}


def files_table(
    spark: SparkSession, known: dict[str, KnownFile], bad: Iterable[LedgerPath]
) -> DataFrame:
    """Return a table of FILES_SCHEMA. `bad`: unreadable files, written without rows."""
    rows: list[tuple[object, ...]] = [
        (
            uri,
            file.size,
            *(one.site, one.state, one.stage, one.first, one.last, one.count),
            *(one.from_ms, one.to_ms, int(file.is_held), int(one.is_end)),
        )
        for uri, file in sorted(known.items())
        for one in file.rows
    ]
    rows += [(one.uri, one.size, one.site, "", one.stage, *[0] * 7) for one in bad]
    table = small_table(
        spark,
        rows,
        {
            "uri": "string",
            "size": "long",
            **dict.fromkeys(("site", "state", "stage"), "string"),
            **dict.fromkeys(("first", "last", "rows", "from_ms", "to_ms"), "long"),
            **dict.fromkeys(("is_held", "is_end"), "int"),
        },
    )
    for column in ("is_held", "is_end"):
        table = table.withColumn(column, _cast(column, "boolean"))
    return table


def night_table(spark: SparkSession, night: Night, report: AuditReport) -> DataFrame:
    """Return a table of NIGHTS_SCHEMA with one row."""
    row = (
        night.ran_ms,
        report.verdict.value,
        report.sentence,
        report.mesh,
        report.revision,
        report.level.value,
        report.ledger,
        night.findings,
        night.open,
        night.kept(),
    )
    names = ("verdict", "sentence", "mesh", "revision", "level", "ledger")
    table = small_table(
        spark,
        [row],
        {
            "ran_ms": "long",
            **dict.fromkeys(names, "string"),
            **dict.fromkeys(("findings", "open"), "long"),
            "kept": "string",
        },
    )
    return table.selectExpr("timestamp_millis(ran_ms) AS ran", *names, "findings", "open", "kept")


def _cast(column: str, kind: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.col(column).cast(kind)
