"""What was packed against what was settled, of one set of files: from the digest to the report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_audit.compare import latency, order
from spark_audit.compare.exactly import by_batches
from spark_audit.compare.fingerprints import by_blocks
from spark_audit.compare.latency import Latency, Sample
from spark_audit.compare.premises import Premises
from spark_audit.compare.reading import Reading
from spark_audit.compare.reported_positions import reported_positions
from spark_audit.compare.waiting import told_waiting
from spark_audit.compare.whole_batches import Expectations, compared_whole, expectations
from spark_audit.judge import verdicts
from spark_audit.ledgers.books import Problem
from spark_audit.ledgers.files import LedgerListing
from spark_audit.ledgers.source import LedgerSource
from spark_audit.level import Level
from spark_audit.nights.open_messages import left_open
from spark_audit.receipts.witnesses import witness
from spark_audit.report import counts
from spark_audit.report.report import AuditReport
from spark_audit.report.shown import shown


def compare(
    premises: Premises,
    source: LedgerSource,
    listing: LedgerListing,
    table: Any,
    ledger: str,
    say: Callable[[str], None],
    *,
    open_all: bool = False,
    receipts: Any = None,
) -> AuditReport:
    """The report. `table`: the digest of the files that count. `open_all`: open every batch, also
    those that add up. `receipts`: what publishers and consumers say (`receipts.read_receipts`).
    """
    # What several steps need is worked out once and cut off from where it came from: plans that
    # hang together cost Spark more than the work itself.
    keep = premises.keep
    expected = expectations(premises, table)
    reading = Reading(premises, source, table, reported_positions(premises, table))
    say("comparing batches")
    if premises.level is Level.FINGERPRINT:
        compared = by_blocks(reading, expected.table, say, open_all=open_all)
    else:
        compared = by_batches(reading, expected.table, say, open_all=open_all)
    say("working out how long they took")
    sample = Sample.of(reading.count())
    latencies = _latencies(reading, sample)
    loops = _loops(reading)
    found = keep(verdicts.findings_of(compared.messages).unionByName(loops))
    heard = None
    if receipts is not None:
        say("hearing the receipts")
        packed, whole = reading.packed(), compared.batches
        if whole is None:
            whole = compared_whole(premises, source, packed, reading.settled(), expected.table)
        heard = witness(premises, receipts, packed, whole, compared.messages)
        found = keep(found.unionByName(heard.findings, allowMissingColumns=True))
    return AuditReport(
        mesh=premises.mesh.name,
        revision=premises.mesh.revision,
        period=premises.period,
        ledger=ledger,
        level=premises.level,
        names=premises.names,
        counts=counts.counted(compared.messages, compared.whole),
        findings={row["kind"]: row["count"] for row in found.groupBy("kind").count().collect()},
        shown=shown(found),
        waiting=told_waiting(premises, source, compared.messages),
        problems=[
            *_problems(premises, listing, expected),
            *(heard.problems if heard else ()),
        ],
        table=found,
        latencies=latencies,
        timed_every=sample.every,
        receipts=heard.as_json() if heard else None,
        left=left_open(compared.messages),
        leaked_before=reading.leaked_before,
        revisions_unknown=expected.unknown,
        accepted_gaps=reading.accepted_gaps(),
    )


def _latencies(reading: Reading, sample: Sample) -> list[Latency]:
    """Of a large day only of some minutes, and of the files that have these."""
    premises = reading.premises
    period = premises.period
    files = reading.files_where(sample.is_in_file()) if sample.every > 1 else None
    rows = reading.source.rows(("packed", "linked_in", "delivered"), only=files)
    sampled = rows.where(sample.times(period)).where(sample.holds("unix_millis(first_published)"))
    told = premises.keep(
        latency.timed(sampled, premises.cluster_of(), period.from_ms, period.to_ms)
    )
    return latency.percentiles(latency.deliveries(told).unionByName(latency.hops(told)))


def _loops(reading: Reading) -> Any:
    """Only files that have any are read for them."""
    premises = reading.premises
    first, last = "unix_millis(first_published)", "unix_millis(last_published)"
    rows = reading.source.rows(("delivered", "linked_in"), only=reading.files_where("has_loop"))
    looped = order.looped_rows(rows.where(premises.touches_period(first, last)))
    return verdicts.loops_of(looped.withColumn("at", premises.cluster_of()))


def _problems(premises: Premises, listing: LedgerListing, expected: Expectations) -> list[Problem]:
    said = [*listing.unreadable, *premises.revisions.unreadable, *expected.problems()]
    return [*premises.books.problems, *(Problem("", what) for what in said)]
