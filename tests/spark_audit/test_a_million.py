"""A million messages with a fault of each kind among them: each is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_audit.generate.generator import generate_ledgers
from tests.spark_audit.conftest import DAY, AuditOf
from tests.spark_audit.test_planted_faults import FINDING_KINDS, check

pytestmark = pytest.mark.spark


def test_a_million_messages_with_all_faults(tmp_path: Path, audit_of: AuditOf) -> None:
    planted = generate_ledgers(tmp_path / "made", 4, 1_000_000, 5, DAY, ["all"])
    assert {one.kind for one in planted.findings} == FINDING_KINDS
    check(planted, audit_of(tmp_path / "made"))
