"""By fingerprints the same is found as exactly, but what the level says that it does not tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federation.mesh_file import load_mesh
from spark_audit.generate.bulk import ENTRIES, generate_bulk
from spark_audit.generate.faults import FAULTS
from spark_audit.generate.generator import generate_ledgers
from spark_audit.generate.harmless import HARMLESS
from spark_audit.job import Audit
from spark_audit.level import Level
from spark_audit.report.report import AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf
from tests.spark_audit.test_planted_faults import check

pytestmark = pytest.mark.spark

NOT_TOLD = ("reordered", "reordered-batches")
NOT_COUNTED = ("flagged",)
TOLD = [kind for kind in FAULTS if kind not in NOT_TOLD]


def change_column(file: Path, column: str, change: Callable[[bytes], bytes]) -> None:
    """Every value of a file's column, the rest as it was."""
    table = pq.read_table(file)
    values = [value and change(value) for value in table[column].to_pylist()]
    at = table.schema.get_field_index(column)
    table = table.set_column(at, table.schema.field(at), pa.array(values, pa.binary()))
    pq.write_table(table, file)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_all_at_once(tmp_path: Path, audit_of: AuditOf, seed: int) -> None:
    kinds = [kind for kind in (*TOLD, *HARMLESS) if kind not in NOT_COUNTED]
    planted = generate_ledgers(tmp_path / "made", 4, 20_000, seed, DAY, kinds)
    check(planted, audit_of(tmp_path / "made", level=Level.FINGERPRINT))


@pytest.mark.long  # all of them at once, above, has each
@pytest.mark.parametrize("kind", TOLD)
def test_a_fault_by_itself(tmp_path: Path, audit_of: AuditOf, kind: str) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 3_000, 7, DAY, [kind])
    check(planted, audit_of(tmp_path / "made", level=Level.FINGERPRINT))


@pytest.mark.parametrize("kind", NOT_TOLD)
def test_order_is_not_told_and_it_says_so(tmp_path: Path, audit_of: AuditOf, kind: str) -> None:
    generate_ledgers(tmp_path / "made", 3, 3_000, 7, DAY, [kind])
    report = audit_of(tmp_path / "made", level=Level.FINGERPRINT)
    assert report.verdict is AuditVerdict.PROVEN
    assert any("order" in what for what in report.as_json()["not_told"])


def test_no_identity_is_looked_at_of_what_adds_up(tmp_path: Path, audit_of: AuditOf) -> None:
    generate_ledgers(tmp_path / "made", 3, 6_000, 1, DAY, [])
    file = next((tmp_path / "made/sites/site2/ledger").glob("date=*/delivered-*.parquet"))
    change_column(file, "identities", lambda identities: bytes(len(identities)))
    report = audit_of(tmp_path / "made", level=Level.FINGERPRINT)
    assert report.verdict is AuditVerdict.PROVEN, report.as_json()
    assert report.totals == {"delivered": 12_000}
    exactly = audit_of(tmp_path / "made")
    assert exactly.verdict is AuditVerdict.FINDINGS


def test_bulk_ledgers_are_proven_by_either_level(tmp_path: Path, audit_of: AuditOf) -> None:
    messages = generate_bulk(tmp_path / "made", 3, 20_000, DAY, small=True)
    assert messages == 20_000 // 3 // ENTRIES * 3 * ENTRIES
    for level in Level:
        report = audit_of(tmp_path / "made", level=level)
        assert report.verdict is AuditVerdict.PROVEN, report.as_json()
        assert report.totals == {"delivered": 2 * messages}


@pytest.mark.parametrize(
    "level", [Level.FINGERPRINT, pytest.param(Level.EXACT, marks=pytest.mark.long)]
)
def test_what_is_kept_as_files_gives_the_same(tmp_path: Path, spark: Any, level: Level) -> None:
    made, work = tmp_path / "made", tmp_path / "work"
    planted = generate_ledgers(made, 3, 6_000, 5, DAY, ["lost", "leaked-across-nodes"])
    mesh = load_mesh(made / "mesh.yaml")
    job = Audit(spark, mesh, str(made / "sites"), DAY, level=level, work=work.as_uri())
    check(planted, job.run())
    job.clear()
    assert not work.exists()
