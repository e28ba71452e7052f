"""Ledgers of a site whose nodes have each exported a part, and some of it twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_audit.generate.generator import generate_ledgers
from spark_audit.report.report import AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf
from tests.spark_audit.test_trace import details_at, made, trace_of

NODES = ("a", "b", "c")


def share(site: Path) -> int:
    """Move the ledger files of a site and its slots to its nodes in turn, each fourth to two of
    them; how many those were.
    """
    files = sorted(site.rglob("date=*/*.parquet"))
    twice = 0
    for number, file in enumerate(files):
        for node in NODES[number % 3 : number % 3 + (2 if number % 4 == 0 else 1)]:
            there = site / "nodes" / node / file.relative_to(site)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, there)
        twice += number % 4 == 0 and number % 3 < 2
        file.unlink()
    for node in NODES[:2]:
        shutil.copytree(site / "ledger" / "revisions", site / f"nodes/{node}/ledger/revisions")
    shutil.rmtree(site / "ledger")
    return twice


@pytest.mark.spark
@pytest.mark.parametrize("fault", [None, "lost"])
def test_the_audit_counts_each_row_once(
    tmp_path: Path, audit_of: AuditOf, fault: str | None
) -> None:
    made_here = tmp_path / "nodes"  # as the folder in each site
    faults = [fault] if fault else []
    generate_ledgers(made_here, 3, 6_000, 3, DAY, faults, at_rows=256)
    for site in sorted((made_here / "sites").iterdir()):
        assert share(site) > 0
    report = audit_of(made_here)
    if fault:
        assert report.verdict is AuditVerdict.FINDINGS
        assert set(report.findings) == {"lost"}
    else:
        assert report.verdict is AuditVerdict.PROVEN, report.why_not_proven
        assert report.totals == {"delivered": 12_000}


def test_a_trace_finds_rows_at_every_node(tmp_path: Path) -> None:
    (lost,) = made(tmp_path, "lost")
    before = trace_of(tmp_path, lost.identity)
    for site in sorted((tmp_path / "made" / "sites").iterdir()):
        share(site)
    found = trace_of(tmp_path, lost.identity)
    assert details_at(found, lost.destination, "missing") == details_at(
        before, lost.destination, "missing"
    )
