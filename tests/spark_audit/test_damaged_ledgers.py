"""What lacks is named and makes nothing green: not proven, never a false loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.mesh_file import load_mesh
from spark_audit.generate.files import write_revision
from spark_audit.generate.generator import DOUBTS, generate_ledgers
from spark_audit.period import Period
from spark_audit.report.report import AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf

pytestmark = pytest.mark.spark


OF_DELIVERED = [kind for kind in DOUBTS if not kind.startswith(("packed", "linked"))]
OF_OTHERS = [
    f"{stage}-{kind}" for stage in ("packed", "linked_in") for kind in ("file-missing", "corrupt")
]
LEADING = {"ledger-missing", "file-twice", "corrupt", "pending", "gap", "packed-file-missing"}
"""Kinds of which every other kind is a variant."""


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in LEADING else pytest.param(kind, marks=pytest.mark.long)
        for kind in (*OF_DELIVERED, *OF_OTHERS)
    ],
)
def test_what_lacks_is_named_and_proves_nothing(
    tmp_path: Path, audit_of: AuditOf, kind: str
) -> None:
    made = tmp_path / "made in 100% + more"  # whose name Spark encodes
    planted = generate_ledgers(made, 3, 6_000, 3, DAY, [kind], at_rows=256)
    report = audit_of(made)
    assert report.findings == {}, report.as_json()["shown"]
    assert report.verdict is AuditVerdict.NOT_PROVEN
    for name in planted.not_proven:
        assert any(name in why for why in report.why_not_proven), report.why_not_proven
    if "ledger" not in kind and "packed" not in kind:
        assert report.totals["pending"] == planted.explained["pending"]
    if "pending" in kind or kind == "gap":
        assert report.totals["unproven"] == 0
    if "file-twice" in kind or kind.startswith("linked_in"):
        assert report.totals == {"delivered": 12_000}


def test_what_a_site_had_not_come_to_when_it_left_the_mesh_is_explained(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    planted = generate_ledgers(tmp_path / "made", 4, 6_000, 3, DAY, ["pending"])
    site = planted.not_proven[-1].split()[-1]
    mesh = tmp_path / "made" / "mesh.yaml"
    mesh.write_text(mesh.read_text().replace(f"  {site}: {{}}\n", ""))
    report = audit_of(tmp_path / "made")
    assert report.verdict is AuditVerdict.PROVEN, report.why_not_proven
    assert report.totals["departed"] == planted.explained["pending"]


def test_a_site_that_left_the_mesh_has_to_tell_of_the_time_until_then(
    tmp_path: Path, audit_of: AuditOf
) -> None:
    made = tmp_path / "made"
    generate_ledgers(made, 4, 6_000, 3, DAY, [], at_rows=256)
    mesh = made / "mesh.yaml"
    mesh.write_text(mesh.read_text().replace("  site4: {}\n", ""))
    left_ms = (DAY.from_ms + DAY.to_ms) // 2
    for site in ("site1", "site2", "site3"):
        write_revision(load_mesh(mesh), made / "sites" / site / "ledger", left_ms + 3_600_000)
    files = sorted((made / "sites" / "site4" / "ledger").glob("date=*/delivered-*.parquet"))
    for file in files[len(files) // 4 :]:
        file.unlink()
    report = audit_of(made)
    assert report.findings == {}
    assert report.totals["departed"] == 0
    assert report.totals["unproven"] > 0
    (why,) = [str(one) for one in report.problems]
    assert why.startswith("site4 delivered: the ledger ends at 2026-03-01 0")
    assert why.endswith("before the site left the mesh (2026-03-01 12:00:00)")


def without_its_first_file(made: Path, kind: str) -> Period:
    """A fault at a site whose retention has taken its first rows, and the rest of the day: what a
    barrier knew from then nobody can look up.
    """
    (lost,) = generate_ledgers(made, 3, 3_000, 7, DAY, [kind], at_rows=64).findings
    files = (made / "sites" / lost.destination / "ledger").glob("date=*/delivered-*.parquet")
    min(files, key=lambda file: file.name[-33:]).unlink()
    return Period(DAY.from_ms + 3 * 3_600_000, DAY.to_ms)


def test_a_repair_that_was_refused_leaves_lost_what_is(tmp_path: Path, audit_of: AuditOf) -> None:
    made = tmp_path / "made"
    report = audit_of(made, without_its_first_file(made, "repair-refused"))
    assert report.findings == {"lost": 1}


def test_a_duplicate_of_what_older_files_had_is_not_lost(tmp_path: Path, audit_of: AuditOf) -> None:
    made = tmp_path / "made"
    report = audit_of(made, without_its_first_file(made, "lost-as-duplicate"))
    assert report.findings == {}
    assert report.totals["unproven"] == 1
    assert report.verdict is AuditVerdict.NOT_PROVEN
    assert [str(one) for one in report.problems] == []
