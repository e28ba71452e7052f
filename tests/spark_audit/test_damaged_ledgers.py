"""What lacks is named and makes nothing green: not proven, never a false loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_audit.generator import generate_ledgers
from spark_audit.report import AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "kind", ["ledger-missing", "file-missing", "truncated", "corrupt", "file-twice", "pending"]
)
def test_damage_is_named_and_proves_nothing(tmp_path: Path, audit_of: AuditOf, kind: str) -> None:
    planted = generate_ledgers(tmp_path / "made", 3, 6_000, 3, DAY, [kind], at_rows=256)
    report = audit_of(tmp_path / "made")
    assert report.findings == {}, report.as_json()["shown"]
    assert report.verdict is AuditVerdict.NOT_PROVEN
    for name in planted.not_proven:
        assert any(name in why for why in report.why_not_proven), report.why_not_proven
    if kind == "pending":
        assert report.totals["pending"] == planted.explained["pending"]
        assert report.totals["unproven"] == 0
    if kind == "file-twice":
        assert report.totals == {"delivered": 12_000}
