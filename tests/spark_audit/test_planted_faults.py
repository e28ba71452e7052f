"""Each planted fault is found exactly, and nothing is found that was not planted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spark_audit.generate.faults import FAULTS
from spark_audit.generate.generator import generate_ledgers
from spark_audit.generate.harmless import HARMLESS, SHAPES
from spark_audit.generate.planting import Planted, PlantedFinding
from spark_audit.report.advice import Commands
from spark_audit.report.html import page
from spark_audit.report.report import AuditReport, AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf

pytestmark = pytest.mark.spark

FINDING_KINDS = {
    *("lost", "leaked duplicate", "unexpected", "altered", "reordered", "looped", "late")
}


def found_in(report: AuditReport) -> list[PlantedFinding]:
    return sorted(
        PlantedFinding(
            row["kind"],
            row["identity"] or "",
            report.name(row["origin"]),
            report.name(row["destination"]),
        )
        for row in report.table.select("kind", "identity", "origin", "destination").collect()
    )


def explained_in(report: AuditReport) -> Counter[str]:
    return Counter(
        {
            verdict: count
            for verdict, count in report.totals.items()
            if verdict not in FINDING_KINDS | {"delivered"}
        }
    )


def check(planted: Planted, report: AuditReport) -> None:
    assert found_in(report) == sorted(planted.findings)
    assert explained_in(report) == planted.explained
    assert report.why_not_proven == []


def test_a_day_without_a_fault_is_proven(tmp_path: Path, audit_of: AuditOf) -> None:
    generate_ledgers(tmp_path / "made", 4, 20_000, 1, DAY, [])
    report = audit_of(tmp_path / "made")
    assert report.verdict is AuditVerdict.PROVEN, report.as_json()
    assert report.totals == {"delivered": 60_000}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_all_at_once(tmp_path: Path, audit_of: AuditOf, seed: int) -> None:
    planted = generate_ledgers(tmp_path / "made", 4, 20_000, seed, DAY, ["all"])
    report = audit_of(tmp_path / "made")
    assert {one.kind for one in planted.findings} == FINDING_KINDS
    check(planted, report)
    assert report.verdict is AuditVerdict.FINDINGS
    everything = audit_of(tmp_path / "made", open_all=True)
    assert found_in(everything) == found_in(report)
    assert everything.totals == report.totals


@pytest.mark.long  # all of them at once, above, has each
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_by_itself(tmp_path: Path, audit_of: AuditOf, kind: str) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 3_000, 7, DAY, [kind])
    assert planted.findings
    report = audit_of(tmp_path / "made")
    check(planted, report)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_a_mesh_may_do_is_no_finding(tmp_path: Path, audit_of: AuditOf, seed: int) -> None:
    kinds = [*SHAPES, *HARMLESS]
    planted = generate_ledgers(tmp_path / "made", 4, 6_000, seed, DAY, kinds)
    report = audit_of(tmp_path / "made")
    check(planted, report)
    # What a day's edge cuts is the only thing that lacks.
    assert {one.kind for one in planted.findings} == {"lost"}


def test_what_retention_ate_is_lost_and_said_to_be(tmp_path: Path, audit_of: AuditOf) -> None:
    generate_ledgers(tmp_path / "made", 3, 3_000, 7, DAY, ["lost-in-gap"])
    report = audit_of(tmp_path / "made")
    assert report.shown
    assert all("its log dropped it" in row["why"] for row in report.shown)
    # Lost all the same, and never green; whose word it was stands beside it.
    (accepted,) = report.accepted_gaps
    assert accepted.site == report.as_json()["shown"][0]["destination"]
    assert str(accepted).endswith("accepted by ann@host at noon: gone")
    assert "accepted by ann@host" in page(report, Commands())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_what_is_lost_is_named_as_in_a_batch_that_can_be_sent_again(
    tmp_path: Path, audit_of: AuditOf, seed: int
) -> None:
    generate_ledgers(tmp_path / "made", 3, 3_000, seed, DAY, ["begun-then-lost"])
    (row,) = audit_of(tmp_path / "made").shown
    assert row["entry"] > 0, "the first, and only one, of a batch of its begun copy"
