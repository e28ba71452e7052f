"""Run one audit from the list of files to the report.

Every file is read once in thin columns (`digest`). The digest shows whether the books are whole
(`books`), and `compare` judges the messages. A file that cannot be read where more of its rows are
needed is left out, and both steps run again. Messages that earlier days left open are looked for in
the same files (`nightly_run`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from federation.mesh import Mesh
from spark_audit.compare import batches, latency
from spark_audit.compare.assumptions import Assumptions
from spark_audit.compare.digest import digest, file_rows, without_files
from spark_audit.compare.latency import Latency, MinuteSample
from spark_audit.compare.levels import by_batches, by_blocks
from spark_audit.compare.reading import LedgerReading
from spark_audit.compare.reported_positions import reported_positions, seen_incarnations
from spark_audit.compare.waiting import pending_places
from spark_audit.compare.whole_batches import Expectations, compared_whole, expectations
from spark_audit.frames import Keep
from spark_audit.judge import verdicts
from spark_audit.judge.expectation import Revisions, stages_of
from spark_audit.judge.positions import SeenIncarnation
from spark_audit.ledgers.books import (
    Books,
    FileRows,
    Former,
    LedgerProblem,
    judge_books,
    judge_former_slots,
)
from spark_audit.ledgers.files import LedgerListing, LedgerPath, list_ledgers
from spark_audit.ledgers.source import LedgerSource
from spark_audit.level import Level
from spark_audit.nightly_run.earlier_days import carried_over, with_leaks_since
from spark_audit.nightly_run.history import NightHistory
from spark_audit.nightly_run.open_messages import left_open
from spark_audit.nightly_run.plan import NightPlan, plan_night
from spark_audit.period import Period
from spark_audit.receipts.evidence import evidence_of
from spark_audit.receipts.receipts import read_receipts
from spark_audit.report.report import AuditReport
from spark_audit.report.tables import counts_by_minute, displayed_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES_OF_A_PARTITION = 16 << 20
SMALL_BYTES = 64 << 20
SMALL_ROWS = 100_000
_LATEST = 2**62
_BEFORE_S = 3600
"""Seconds by which a site's rows have to begin before the first open message, by the site's clock.
"""


@dataclass(frozen=True, slots=True)
class AuditCoverage:
    """Files and rows that an audit covered, as the next night needs them. `table`: digest of the
    files that count; `rows`: rows of every file, including closed files that an earlier night
    described.
    """

    listing: LedgerListing
    plan: NightPlan
    books: Books
    table: DataFrame
    rows: list[FileRows]
    incarnations: list[SeenIncarnation]


@dataclass(slots=True)
class Audit:
    """One audit run. `mesh` is the present mesh file, which names the sites that must have a
    ledger.
    """

    spark: SparkSession
    mesh: Mesh
    ledger: str
    period: Period
    say: Callable[[str], None] = lambda text: None
    open_all: bool = False
    """True to open every batch, also batches that add up; for tests."""
    receipts: str | None = None
    """Path or URI of the publishers' and consumers' receipts, or None without receipts."""
    level: Level = Level.EXACT
    work: str = ""
    """URI of a folder that all executors reach and nothing else uses, for intermediate tables until
    `clear`; empty on one machine."""
    before: NightHistory | None = None
    """State that earlier nights left, or None for an audit of its own."""
    looked: AuditCoverage | None = field(default=None, init=False)
    """Coverage of the finished run, or None before."""

    def run(self) -> AuditReport:
        """Return the report. Raises TooManyBadFiles, BadReceipts."""
        self.say("looking through the ledgers' files")
        listing = list_ledgers(self.spark, self.ledger, self._from_date())
        plan = self._plan(listing)
        self._fit(plan.opened)
        source = LedgerSource(self.spark, list(plan.opened))
        revisions = Revisions.read(listing.revisions)
        revisions.add(self.mesh, _LATEST)
        keep = Keep(self.spark, self.work)
        receipts = None
        if self.receipts is not None:
            self.say("reading receipts")
            clusters = {name: cluster for cluster, name in revisions.site_names().items()}
            receipts = read_receipts(self.spark, self.receipts, clusters)
        # Lenient: the books miss an unreadable file, and name it.
        table = keep(digest(source, links_by_flow=bool(revisions.begins_at_start)))
        return source.without_bad_files(
            lambda: self._attempt(listing, plan, source, revisions, keep, table, receipts)
        )

    def clear(self) -> None:
        """Delete the intermediate files, which include the report's table of findings."""
        Keep(self.spark, self.work).clear()

    def _from_date(self) -> str:
        """Return the first date folder whose files can matter."""
        kept_s = self.mesh.retention_s
        own = self.period.dates(kept_s)
        if self.before is None or self.before.oldest_ms is None:
            return own
        oldest = Period(self.before.oldest_ms, self.period.to_ms)
        return min(own, oldest.dates(kept_s + _BEFORE_S))

    def _plan(self, listing: LedgerListing) -> NightPlan:
        if self.before is None:
            return NightPlan.of_all(listing.files)
        kept_s = self.mesh.retention_s
        return plan_night(
            listing.files,
            self.before.known,
            self.period.dates(kept_s),
            self.period.from_ms - round(kept_s * 1000),
            is_open=self.before.left is not None,
        )

    def _attempt(
        self,
        listing: LedgerListing,
        plan: NightPlan,
        source: LedgerSource,
        revisions: Revisions,
        keep: Keep,
        table: DataFrame,
        receipts: DataFrame | None,
    ) -> AuditReport:
        source.left_out, source.overlap = set(), False
        must_have = {site: stages_of(self.mesh, site) for site in self.mesh.sites}
        slots = {name: site.slots.count for name, site in self.mesh.sites.items()}
        former = {
            site: Former(tuple(stages_of(last, site)), revisions.left_ms(site))
            for site in set(revisions.site_names().values()) - set(self.mesh.sites)
            if (last := revisions.last_with(site)) is not None
        }
        readable = without_files(table, [*source.bad])
        rows = [*file_rows(readable), *plan.known_rows]

        def judged(files: Sequence[LedgerPath], period: Period, opened: Collection[str]) -> Books:
            named = {file.uri for file in files}
            older = listing.older.union(
                file.site
                for file in listing.files
                if file.uri not in named and file.stage in ("", "delivered")
            )
            here = replace(listing, files=tuple(files), older=older)
            mine = [one for one in rows if one.uri in named]
            books = judge_books(here, mine, source.bad, must_have, period, former, opened, slots)
            for site, stages in must_have.items():
                had = [
                    one.slots.count
                    for one in revisions.slots_of(site)
                    if one.from_ms < period.to_ms
                    and one.to_ms is not None
                    and one.to_ms > period.from_ms
                ]
                missing = range(slots[site], max(had, default=0))
                judge_former_slots(books, here, site, missing, stages)
            return books

        books = judged(plan.of_day, self.period, plan.day_opened)
        source.left_out, source.overlap = set(books.not_counted), books.overlap
        counted = without_files(readable, [*source.left_out])
        before = self.before
        assumptions = Assumptions(
            self.spark,
            self.mesh,
            self.period,
            self.level,
            revisions,
            books,
            keep,
            before.incarnations if before else (),
        )
        of_day = source.only(plan.day_opened)
        others = [file.uri for file in plan.opened if file.uri not in plan.day_opened]
        report = compare(
            assumptions,
            of_day,
            listing,
            without_files(counted, others),
            self.ledger,
            self.say,
            open_all=self.open_all,
            receipts=receipts,
        )
        self.looked = AuditCoverage(listing, plan, books, counted, rows, seen_incarnations(counted))
        if before is None:
            return report
        if before.since:
            report = with_leaks_since(
                *(report, assumptions, of_day, without_files(counted, others)),
                *(plan.unseen, before.findings, self.say),
            )
        if before.left is None or before.oldest_ms is None:
            return report
        opened = {file.uri for file in plan.opened}
        since = Period(before.oldest_ms, self.period.to_ms)
        older = replace(assumptions, period=since, books=judged(listing.files, since, opened))
        source.left_out |= set(older.books.not_counted)
        source.overlap |= older.books.overlap
        return carried_over(
            report,
            older,
            source,
            without_files(readable, [*source.left_out]),
            before.left,
            self.say,
        )

    def _fit(self, files: Sequence[LedgerPath]) -> None:
        """Set Spark's partitions and compilation for these files. A small audit is mostly Spark's
        own work: each partition costs a task, each stage compiled code that runs once.
        """
        cores = self.spark.sparkContext.defaultParallelism
        size = sum(file.size for file in files)
        rows = sum(file.last - file.first + 1 for file in files if file.stage)
        self.spark.conf.set(
            "spark.sql.shuffle.partitions", str(max(cores, size // BYTES_OF_A_PARTITION))
        )
        # Well compressed rows make small files, and no less work.
        is_small = size <= SMALL_BYTES and rows <= SMALL_ROWS
        for setting in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
            self.spark.conf.set(setting, str(not is_small).lower())
        # Expressions are compiled apart from stages: a quarter of a small audit's time.
        self.spark.conf.set(
            "spark.sql.codegen.factoryMode", "NO_CODEGEN" if is_small else "FALLBACK"
        )


def compare(
    assumptions: Assumptions,
    source: LedgerSource,
    listing: LedgerListing,
    table: DataFrame,
    ledger: str,
    say: Callable[[str], None],
    *,
    open_all: bool = False,
    receipts: DataFrame | None = None,
) -> AuditReport:
    """Compare packed with settled batches and return the report.

    `table`: digest of the files that count. `open_all`: open also batches that add up. `receipts`:
    rows of `read_receipts`, or None.
    """
    # Tables that several steps need are computed once and cut off from their plans: joined
    # plans cost Spark more than the work itself.
    keep = assumptions.keep
    expected = expectations(assumptions, table)
    reading = LedgerReading(assumptions, source, table, reported_positions(assumptions, table))
    say("comparing batches")
    if assumptions.level is Level.FINGERPRINT:
        compared = by_blocks(reading, expected.table, say, open_all=open_all)
    else:
        compared = by_batches(reading, expected.table, say, open_all=open_all)
    say("working out how long they took")
    sample = MinuteSample.of(reading.count())
    latencies = _latencies(reading, sample)
    loops = _loops(reading)
    found = keep(verdicts.findings_of(compared.messages).unionByName(loops))
    evidence = None
    if receipts is not None:
        say("hearing the receipts")
        packed, whole = reading.packed(), compared.batches
        if whole is None:
            whole = compared_whole(assumptions, source, packed, reading.settled(), expected.table)
        evidence = evidence_of(assumptions, receipts, packed, whole, compared.messages)
        found = keep(found.unionByName(evidence.findings, allowMissingColumns=True))
    return AuditReport(
        mesh=assumptions.mesh.name,
        revision=assumptions.mesh.revision,
        period=assumptions.period,
        ledger=ledger,
        level=assumptions.level,
        names=assumptions.names,
        counts=counts_by_minute(compared.messages, compared.whole),
        findings={row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()},
        shown=displayed_findings(found),
        waiting=pending_places(assumptions, source, compared.messages),
        problems=[
            *_problems(assumptions, listing, expected),
            *(evidence.problems if evidence else ()),
        ],
        table=found,
        latencies=latencies,
        timed_every=sample.every,
        receipts=evidence.as_json() if evidence else None,
        left=left_open(compared.messages),
        leaked_before=reading.leaked_before,
        revisions_unknown=expected.unknown,
        accepted_gaps=reading.accepted_gaps(),
    )


def _latencies(reading: LedgerReading, sample: MinuteSample) -> list[Latency]:
    """Measure latencies; of a large day only sampled minutes, from the files that have them."""
    assumptions = reading.assumptions
    period = assumptions.period
    files = reading.files_where(sample.is_in_file()) if sample.every > 1 else None
    rows = reading.source.rows(("packed", "linked_in", "delivered"), only=files)
    sampled = rows.where(sample.times(period)).where(sample.holds("unix_millis(first_published)"))
    timed_rows = assumptions.keep(
        latency.timed(sampled, assumptions.cluster_of(), period.from_ms, period.to_ms)
    )
    return latency.percentiles(latency.deliveries(timed_rows).unionByName(latency.hops(timed_rows)))


def _loops(reading: LedgerReading) -> DataFrame:
    """Return findings of looped batches, reading only files that have any."""
    assumptions = reading.assumptions
    first, last = "unix_millis(first_published)", "unix_millis(last_published)"
    rows = reading.source.rows(("delivered", "linked_in"), only=reading.files_where("has_loop"))
    looped = batches.looped_rows(rows.where(assumptions.touches_period(first, last)))
    return verdicts.loops_of(looped.withColumn("at", assumptions.cluster_of()))


def _problems(
    assumptions: Assumptions, listing: LedgerListing, expected: Expectations
) -> list[LedgerProblem]:
    unexplained = [*listing.unreadable, *assumptions.revisions.unreadable, *expected.problems()]
    return [*assumptions.books.problems, *(LedgerProblem("", what) for what in unexplained)]
