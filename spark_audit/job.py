"""One audit from beginning to end: which files, are they whole, what became of every message.

Steps: the books are looked through (thin columns only); batches are compared as a whole; those that
do not add up are opened, message for message. Each step is a function in a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from federation.mesh import Mesh
from spark_audit import batches, entries, order, verdicts
from spark_audit.books import Books, FileRows, Problem, judge_books
from spark_audit.expectation import Addressed, Revisions
from spark_audit.ledger_files import LedgerListing, list_ledgers
from spark_audit.ledger_source import LedgerSource
from spark_audit.period import Period
from spark_audit.positions import FlowAt, Positions
from spark_audit.report import AuditReport, PairMinute

SHOWN = 1000
"""Findings that the report itself shows; all of them are in the findings' table."""

BYTES_OF_A_PARTITION = 16 << 20
SMALL_BYTES = 64 << 20


@dataclass(slots=True)
class Audit:
    """One run. `mesh` is the mesh file as it is now: which sites must have a ledger."""

    spark: Any
    mesh: Mesh
    ledger: str
    period: Period
    say: Callable[[str], None] = lambda text: None
    open_all: bool = False
    """Open every batch, also those that add up: what tests compare with."""

    def run(self) -> AuditReport:
        """All of it. Raises TooManyBadFiles."""
        from_date = self.period.dates(self.mesh.retention_s)
        self.say("looking through the ledgers' files")
        listing = list_ledgers(self.spark, self.ledger, from_date)
        self._fit(sum(file.size for file in listing.files))
        source = LedgerSource(self.spark, list(listing.files))
        revisions = Revisions.read(listing.revisions)
        revisions.add(self.mesh, _LATEST)
        return source.without_bad_files(lambda: self._attempt(listing, source, revisions))

    def _attempt(
        self, listing: LedgerListing, source: LedgerSource, revisions: Revisions
    ) -> AuditReport:
        source.left_out, source.overlap = set(), False
        books = judge_books(
            listing, self._inventory(source), source.bad, self._must_have(), self.period
        )
        source.left_out, source.overlap = set(books.not_counted), books.overlap
        return _Comparison(self, source, revisions, books, listing).report()

    def _fit(self, size: int) -> None:
        """Spark's settings for so many bytes of files. A small audit is mostly Spark's own work:
        each partition is a task, each stage compiled code that it runs once.
        """
        cores = self.spark.sparkContext.defaultParallelism
        self.spark.conf.set(
            "spark.sql.shuffle.partitions", str(max(cores, size // BYTES_OF_A_PARTITION))
        )
        for setting in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
            self.spark.conf.set(setting, str(size > SMALL_BYTES).lower())

    def _must_have(self) -> dict[str, list[str]]:
        return {site: ["packed", "delivered"] for site in self.mesh.sites}

    def _inventory(self, source: LedgerSource) -> list[FileRows]:
        """What each file says of its rows. Of thin columns, and lenient: what is not there is what
        the books are judged by.
        """
        from pyspark.sql import functions as F  # noqa: N812

        if not source.files:
            return []
        rows = source.rows(lenient=True)
        return [
            FileRows(*row)
            for row in rows.select("site", "state", "stage", "number", "recorded", "_metadata")
            .groupBy(F.col("_metadata.file_path").alias("uri"), "site", "state", "stage")
            .agg(
                F.min("number"),
                F.max("number"),
                F.count("number"),
                F.min(F.expr("unix_millis(recorded)")),
                F.max(F.expr("unix_millis(recorded)")),
            )
            .collect()
        ]


_LATEST = 2**62


class _Comparison:
    """Of the rows of one set of files."""

    def __init__(
        self,
        audit: Audit,
        source: LedgerSource,
        revisions: Revisions,
        books: Books,
        listing: LedgerListing,
    ) -> None:
        self.audit = audit
        self.spark = audit.spark
        self.source = source
        self.revisions = revisions
        self.books = books
        self.listing = listing
        self.names = revisions.site_names()
        clusters = {name: cluster for cluster, name in self.names.items()}
        self.clusters = clusters
        self.by_origin = revisions.scoped_by_origin()
        self.period = audit.period

    def report(self) -> AuditReport:
        from pyspark.sql import functions as F  # noqa: N812

        say, period = self.audit.say, self.period
        # What several steps need is worked out once and cut off from where it came from: plans that
        # hang together cost Spark more than the work itself.
        rows = self.source.rows(("packed", "delivered"))
        positions = self._positions(rows)
        ranks = self._frame(
            [(o, bytes.fromhex(i), r) for (o, i), r in positions.rank.items()],
            "origin string, incarnation binary, rank long",
        )
        packed = batches.ranked(batches.packed_rows(rows), ranks)
        settled = batches.settled_rows(rows, batches.cluster_column(self.clusters))
        say("comparing batches")
        whole = self._whole(packed, settled).localCheckpoint()
        overtaken = self._overtaken(settled, ranks).localCheckpoint()
        odd = whole.where(
            f"NOT is_whole AND last_ms >= {period.from_ms} AND first_ms < {period.to_ms}"
        ).select("series", "sequence")
        odd = odd.unionByName(overtaken.select("series", "sequence")).distinct().localCheckpoint()
        say("looking for identities that came twice")
        known_as = entries.repeated_identities(
            packed, settled.join(odd, ["series", "sequence"], "left_semi"), self.by_origin
        ).localCheckpoint()
        if known_as.head(1):
            twice = entries.batches_with(packed, self.by_origin, known_as).unionByName(
                entries.batches_with(settled, self.by_origin, known_as)
            )
            odd = odd.unionByName(twice).distinct().localCheckpoint()
        if self.audit.open_all:
            odd = whole.select("series", "sequence").localCheckpoint()
        say("opening what does not add up")
        messages = self._messages(
            packed, settled, whole, odd, overtaken, positions
        ).localCheckpoint()
        found = verdicts.findings_of(messages).unionByName(self._loops()).localCheckpoint()
        whole_minutes = self._whole_minutes(whole, odd)
        minutes = self._minutes(messages).unionByName(whole_minutes)
        counted = minutes.groupBy("origin", "destination", "exchange", "minute_ms", "verdict")
        counts = [PairMinute(*row) for row in counted.agg(F.sum("count")).collect()]
        shown = [
            row.asDict()
            for row in found.orderBy("kind", "published", "identity", "destination")
            .withColumn("published", F.expr("unix_millis(published)"))
            .withColumn("delivered", F.expr("unix_millis(delivered)"))
            .limit(SHOWN)
            .collect()
        ]
        kinds = {row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()}
        waiting = self._waiting(messages)
        return AuditReport(
            mesh=self.audit.mesh.name,
            revision=self.audit.mesh.revision,
            period=period,
            ledger=self.audit.ledger,
            names=self.names,
            counts=counts,
            findings=kinds,
            shown=shown,
            waiting=waiting,
            problems=self._problems(whole),
            table=found,
        )

    # -- what is known before anything is compared -------------------------------------------

    def _positions(self, rows: Any) -> Positions:
        from pyspark.sql import functions as F  # noqa: N812

        seen = (
            rows.where("stage = 'packed' AND incarnation IS NOT NULL")
            .groupBy("origin", "incarnation")
            .agg(F.min(F.expr("unix_millis(recorded)")))
            .collect()
        )
        through = (
            rows.where(
                "stage = 'delivered' AND event IN ('through', 'batch', 'void', 'quarantined')"
                " AND exchange IS NOT NULL AND incarnation IS NOT NULL"
            )
            .withColumn("at", batches.cluster_column(self.clusters))
            .groupBy("site", "state", "at", "origin", "exchange", "lane", "incarnation")
            .agg(
                F.max(
                    F.expr("incarnation_sequence - CASE WHEN event = 'through' THEN 0 ELSE 1 END")
                )
            )
            .collect()
        )
        return Positions.of(
            [(origin, bytes(incarnation).hex(), ms) for origin, incarnation, ms in seen],
            [
                (FlowAt(at, origin, exchange, lane), bytes(incarnation).hex(), last)
                for site, state, at, origin, exchange, lane, incarnation, last in through
                if self.books.renewed.get((site, "delivered"), state) == state
            ],
        )

    def _whole(self, packed: Any, settled: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        kinds = [
            (*row[:3], tuple(row[3]))
            for row in packed.select("revision", "exchange", "origin", "destinations")
            .distinct()
            .collect()
        ]
        self.unknown = sorted(
            {k[0] for k in kinds if self.revisions.expected(Addressed(*k)) is None}
        )
        expected = self._frame(
            [
                (k[0], k[1], k[2], ",".join(k[3]), sites, self._deadline_ms(k[1]))
                for k in kinds
                if (sites := self.revisions.expected(Addressed(*k))) is not None
            ],
            "revision string, exchange string, origin string, addressed string,"
            " expected array<string>, deadline_ms long",
        )
        together = batches.together(packed, settled).join(
            F.broadcast(expected), ["revision", "exchange", "origin", "addressed"], "left"
        )
        if self.revisions.begins_at_start:
            together = self._with_early(together)
        return batches.judged_whole(together, self.period.from_ms, self.period.to_ms)

    def _with_early(self, together: Any) -> Any:
        """A site that begins at the start is to have, besides, what was for every site and was sent
        to its log, although the revision of it lacks the site.
        """
        from pyspark.sql import functions as F  # noqa: N812

        early = (
            self.source.rows(("linked_in",))
            .where("event = 'batch' AND size(destinations) = 0")
            .withColumn("at", batches.cluster_column(self.clusters))
            .where(F.col("at").isin(*sorted(self.revisions.begins_at_start)))
            .selectExpr(*batches.NAME, "at", "origin")
            .where("at <> origin")
            .groupBy("series", "sequence")
            .agg(F.collect_set("at").alias("early"))
        )
        return (
            together.join(early, ["series", "sequence"], "left")
            .withColumn(
                "expected",
                F.expr(
                    "CASE WHEN early IS NULL OR expected IS NULL THEN expected"
                    " ELSE array_sort(array_union(expected, early)) END"
                ),
            )
            .drop("early")
        )

    def _deadline_ms(self, exchange: str) -> int | None:
        said = self.revisions.exchanges().get(exchange)
        deadline_s = getattr(said, "deadline_s", None)
        return None if deadline_s is None else round(deadline_s * 1000)

    def _overtaken(self, settled: Any, ranks: Any) -> Any:
        from federation.mesh import OrderRule

        loose = [
            name
            for name, exchange in self.revisions.exchanges().items()
            if exchange.order is not OrderRule.STRICT
        ]
        strict = settled.where(~settled["exchange"].isin(*loose)) if loose else settled
        period = f"last_ms >= {self.period.from_ms} AND first_ms < {self.period.to_ms}"
        return order.overtaken_rows(strict.where(period), ranks)

    # -- message for message -----------------------------------------------------------------

    def _messages(
        self,
        packed: Any,
        settled: Any,
        whole: Any,
        odd: Any,
        overtaken: Any,
        positions: Positions,
    ) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        name = ["series", "sequence"]
        opened = packed.join(odd, name, "left_semi").localCheckpoint()
        done = settled.join(odd, name, "left_semi").localCheckpoint()
        sent = entries.sent_entries(opened, self.by_origin)
        came = entries.settled_entries(done, self.by_origin).localCheckpoint()
        came = entries.with_altered(came)
        sorts = sent.groupBy(*name, "identity").agg(
            F.min("entry").alias("packed_as"), F.count("entry").alias("packed_times")
        )
        batch_known = opened.select(*name).distinct().withColumn("batch_known", F.lit(True))
        came = (
            came.join(sorts, [*name, "identity"], "left")
            .join(batch_known, name, "left")
            .join(
                F.broadcast(
                    overtaken.select("at", "state", "number").withColumn("late_row", F.lit(True))
                ),
                ["at", "state", "number"],
                "left",
            )
            .withColumn("is_known", F.expr("packed_as IS NOT NULL OR event = 'retried'"))
            .withColumn(
                "is_reordered",
                F.expr(
                    "outcome = 1 AND NOT is_flagged AND event = 'batch'"
                    " AND (coalesce(late_row, false) OR (packed_times = 1 AND packed_as < entry))"
                ),
            )
        )
        aside = (
            done.where("event = 'void'")
            .select(*name, "at")
            .withColumn("is_void", F.lit(True))
            .withColumn("is_aside", F.lit(False))
            .unionByName(
                done.where("event = 'quarantined'")
                .select(*name, "at")
                .unionByName(
                    came.where("outcome = 6 AND batch_known AND packed_as IS NULL").select(
                        *name, "at"
                    )
                )
                .withColumn("is_void", F.lit(False))
                .withColumn("is_aside", F.lit(True))
            )
            .groupBy(*name, "at")
            .agg(F.max("is_void").alias("is_void"), F.max("is_aside").alias("is_aside"))
        )
        passed = self._frame(
            [(*flow, place) for flow, place in positions.passed.items()],
            "at string, origin string, exchange string, lane int, passed_to long",
        )
        pairs = (
            whole.join(odd, name, "left_semi")
            .where("packs > 0 AND expected IS NOT NULL")
            .select(
                *name,
                "origin",
                "exchange",
                "lane",
                "place",
                "deadline_ms",
                F.explode("expected").alias("at"),
            )
            .join(F.broadcast(passed), ["at", "origin", "exchange", "lane"], "left")
            .join(aside, [*name, "at"], "left")
            .selectExpr(
                *name,
                "at",
                "deadline_ms",
                "coalesce(place <= passed_to, false) AS is_passed",
                "coalesce(is_void, false) AS is_void",
                "coalesce(is_aside, false) AS is_aside",
            )
        )
        expected = sent.join(pairs, name)
        messages = verdicts.by_message(
            expected, came.drop("batch_known", "late_row", "packed_as", "packed_times")
        )
        lacking, renewed = self.books.incomplete, self.books.renewed
        unpacked = [site for site, stage in [*lacking, *renewed] if stage == "packed"]
        judged = verdicts.judged(
            messages,
            incomplete_at=self._one_of("at", [s for s, stage in lacking if stage == "delivered"]),
            renewed_at=self._one_of("at", [s for s, stage in renewed if stage == "delivered"]),
            incomplete_from=self._one_of("origin", unpacked),
        )
        return judged.where(
            f"published_ms >= {self.period.from_ms} AND published_ms < {self.period.to_ms}"
        )

    def _one_of(self, column: str, sites: list[str]) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        known = [cluster for cluster, name in self.names.items() if name in sites] + sites
        return F.col(column).isin(*known) if known else F.lit(False)

    # -- what comes of it --------------------------------------------------------------------

    def _whole_minutes(self, whole: Any, odd: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        return (
            whole.where("is_whole")
            .join(odd, ["series", "sequence"], "left_anti")
            .select(
                "origin",
                F.explode("expected").alias("destination"),
                "exchange",
                F.expr("sent.first_ms DIV 60000 * 60000").alias("minute_ms"),
                F.lit("delivered").alias("verdict"),
                F.expr("CAST(sent.count AS BIGINT)").alias("count"),
            )
        )

    def _minutes(self, messages: Any) -> Any:
        """Counts by verdict, and of what came besides: `redelivered`, `suppressed`, ..."""
        extras = """
            stack(6,
                verdict, 1L,
                'leaked duplicate', CAST(leaked AS BIGINT),
                'redelivered', CAST(redelivered AS BIGINT),
                'suppressed', CAST(duplicates AS BIGINT)
                    - CASE WHEN verdict IN ('suppressed', 'lost', 'unproven') THEN 1 ELSE 0 END,
                'altered', CAST(altered AS BIGINT),
                'reordered', CAST(reordered AS BIGINT)) AS (verdict, count)
        """
        return messages.selectExpr(
            "origin",
            "at AS destination",
            "exchange",
            "published_ms DIV 60000 * 60000 AS minute_ms",
            extras,
        ).where("count > 0")

    def _loops(self) -> Any:
        rows = self.source.rows(("delivered", "linked_in")).where(
            f"unix_millis(last_published) >= {self.period.from_ms}"
            f" AND unix_millis(first_published) < {self.period.to_ms}"
        )
        found = order.looped_rows(rows).withColumn("at", batches.cluster_column(self.clusters))
        return verdicts.loops_of(found)

    def _waiting(self, messages: Any) -> list[dict[str, Any]]:
        from pyspark.sql import functions as F  # noqa: N812

        return [
            row.asDict()
            for row in messages.where("verdict = 'pending'")
            .groupBy("origin", F.col("at").alias("destination"), "exchange")
            .agg(F.count("at").alias("messages"), F.min("published_ms").alias("since_ms"))
            .orderBy("origin", "destination", "exchange")
            .collect()
        ]

    def _problems(self, whole: Any) -> list[Problem]:
        problems = list(self.books.problems)
        problems += [Problem("", what) for what in self.listing.unreadable]
        problems += [Problem("", what) for what in self.revisions.unreadable]
        problems += [
            Problem("", f"nobody's ledger/revisions has {one or 'the revision of some batches'}")
            for one in self.unknown
        ]
        return problems

    def _frame(self, rows: list[Any], schema: str) -> Any:
        return self.spark.createDataFrame(rows, schema)
