"""Audit a day as a part of a series: take over what earlier nights left open, and leave tables.

A day that missing rows kept unproven is audited again once the rows have come: its tables are
replaced, and the night's report shows the new result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from federation.mesh import Mesh
from federation.wording import few
from spark_audit.frames import Keep
from spark_audit.job import Audit, AuditCoverage
from spark_audit.judge.positions import SeenIncarnation, in_order
from spark_audit.ledgers.files import LedgerListing, LedgerPath, list_ledgers
from spark_audit.level import Level
from spark_audit.nightly_run import tables
from spark_audit.nightly_run.history import (
    NIGHTS_SCHEMA,
    NightHistory,
    files_table,
    night_table,
    read_history,
)
from spark_audit.nightly_run.night import Night, OpenDay
from spark_audit.nightly_run.open_messages import files_of
from spark_audit.nightly_run.plan import KnownFile
from spark_audit.nightly_run.tables import NightTables
from spark_audit.period import Period
from spark_audit.report.report import AuditedAgain, AuditReport, EarlierDays
from spark_audit.report.tables import counts_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True)
class NightlyAudit:
    """Audit of one night. `root`: root of `NightTables`. `now_ms`: clock that orders two audits of
    the same day. `reported`: days that have a report. `on_report`: callback that receives the
    reports of days audited again.
    """

    spark: SparkSession
    mesh: Mesh
    ledger: str
    root: str
    now_ms: Callable[[], int]
    say: Callable[[str], None] = lambda text: None
    on_report: Callable[[str, AuditReport], None] = lambda day, report: None
    receipts: str | None = None
    level: Level = Level.EXACT
    work: str = ""
    reported: Sequence[str] = ()
    looked: AuditCoverage | None = None
    """Coverage of the last finished audit."""

    def run(self, day: date) -> AuditReport:
        """Audit a day and write its tables. Raises TooManyBadFiles, BadReceipts."""
        store = NightTables(self.spark, self.root)
        store.recover()
        name = day.isoformat()
        before = self._before(store, name)
        again = []
        for one in self._to_audit_again(before):
            self.say(f"auditing {one.day} again, whose missing rows have come")
            earlier = self._findings(store, one.day)
            report = self._night(store, one.day, self._before(store, one.day), [])
            self.on_report(one.day, report)
            found = sum(report.findings.values())
            again.append(
                AuditedAgain(one.day, report.verdict.value, report.sentence, found > earlier)
            )
        if again:
            before = self._before(store, name)
        return self._night(store, name, before, again)

    def clear(self) -> None:
        """Delete the intermediate files, which include the report's table of findings."""
        Keep(self.spark, self.work).clear()

    def _before(self, store: NightTables, day: str) -> NightHistory:
        return read_history(store, day, self.mesh.retention_s, self.reported)

    def _to_audit_again(self, before: NightHistory) -> list[OpenDay]:
        """Return days whose missing rows may have come since."""
        lacking = [one for one in before.open_days if one.sites]
        if not lacking:
            return []
        listing = list_ledgers(self.spark, self.ledger, lacking[0].day)
        return [one for one in lacking if has_come(one, listing, before)]

    def _findings(self, store: NightTables, day: str) -> int:
        return int(store.collect(tables.NIGHTS, day, NIGHTS_SCHEMA)[0]["findings"])

    def _night(
        self, store: NightTables, day: str, before: NightHistory, again: list[AuditedAgain]
    ) -> AuditReport:
        job = Audit(
            self.spark,
            self.mesh,
            self.ledger,
            Period.of_day(date.fromisoformat(day)),
            self.say,
            receipts=self.receipts,
            level=self.level,
            work=self.work,
            before=before,
        )
        report = job.run()
        looked = self.looked = job.looked
        assert looked is not None
        carried = report.carried or EarlierDays()
        carried.since, carried.again = before.since, again
        carried.reasons = _reasons(before)
        report = replace(report, carried=carried)
        left = report.left
        count = left.count()
        self.say("writing the tables")
        night = Night(
            day,
            self.now_ms(),
            report.verdict.value,
            sum(report.findings.values()),
            count,
            (*before.open_days, *_own(day, report, looked)),
            _merged(before, looked),
        )
        store.write(
            day,
            {
                tables.FINDINGS: report.table,
                tables.COUNTS: counts_table(self.spark, report.counts),
                tables.PENDING: left.sort("published", "identity", "destination"),
                tables.FILES: files_table(self.spark, *_known(looked, left)),
                tables.NIGHTS: night_table(self.spark, night, report),
            },
        )
        return report


def has_come(day: OpenDay, listing: LedgerListing, before: NightHistory) -> bool:
    """True if a new file may hold the missing rows: a file of the day, or any file of a site whose
    rows ended before the day did. An unreadable file counts as new once its size differs.
    """
    sizes = {**before.bad, **{uri: file.size for uri, file in before.known.items()}}
    return any(
        file.site in day.sites
        and sizes.get(file.uri) != file.size
        and (file.date <= day.day or file.site in day.is_short)
        for file in listing.files
    )


def _reasons(before: NightHistory) -> list[str]:
    command = "isthmus audit FILE --date"
    reasons = [f"{one} was never audited: `{command} {one}`" for one in before.skipped]
    for one in before.open_days:
        reasons.append(
            f"{one.day} is not proven: {one.why}: `{command} {one.day}` once that is mended"
        )
    for day, count in sorted(before.given_up.items()):
        reasons.append(
            f"of messages published on {day}, {count:,} have not come in all this time, and"
            f" nobody's rows tell what became of them: they are not looked for any more"
        )
    return reasons


def _own(day: str, report: AuditReport, looked: AuditCoverage) -> list[OpenDay]:
    """Return the day itself as open if its audit has to be repeated."""
    lacking = {site for site, _ in looked.books.incomplete}
    of_sites = [one for one in report.problems if one.site in lacking]
    if not of_sites and not report.revisions_unknown:
        return []
    end_ms = Period.of_day(date.fromisoformat(day)).to_ms
    sites = sorted({one.site for one in of_sites})
    reached: dict[tuple[str, str], int] = {}
    for row in looked.rows:
        reached[row.site, row.stage] = max(row.to_ms, reached.get((row.site, row.stage), 0))
    short = [
        site
        for site in sites
        if not any(at == site for at, _ in reached)
        or min(ms for (at, _), ms in reached.items() if at == site) < end_ms
    ]
    why = few(list(map(str, of_sites)), between="; ") or "a revision's document is missing"
    return [OpenDay(day, why, tuple(sites), tuple(short))]


def _merged(before: NightHistory, looked: AuditCoverage) -> tuple[SeenIncarnation, ...]:
    return tuple(in_order([*before.incarnations, *looked.incarnations]))


def _known(looked: AuditCoverage, left: DataFrame) -> tuple[dict[str, KnownFile], list[LedgerPath]]:
    """Return the files that the next night need not open, and the files that could not be read."""
    sizes = {file.uri: file.size for file in looked.listing.files}
    held = files_of(looked.table, left.where("series IS NOT NULL"))
    found: dict[str, KnownFile] = {}
    for row in looked.rows:
        file = found.setdefault(row.uri, KnownFile(sizes[row.uri], [], row.uri in held))
        file.rows.append(row)
    return found, [file for file in looked.plan.opened if file.uri not in found]
