"""What tests of the audit share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from federation.mesh_file import load_mesh
from spark_audit.job import Audit
from spark_audit.level import Level
from spark_audit.period import Period
from spark_audit.report.report import AuditReport

DAY = Period.of_day(date(2026, 3, 1))

AuditOf = Callable[..., AuditReport]


@pytest.fixture
def audit_of(spark: Any) -> AuditOf:
    """Call with a folder that `generate_ledgers` has filled."""

    def run(
        folder: Path,
        period: Period = DAY,
        *,
        open_all: bool = False,
        level: Level = Level.EXACT,
    ) -> AuditReport:
        mesh = load_mesh(folder / "mesh.yaml")
        ledger = str(folder / "sites")
        return Audit(spark, mesh, ledger, period, open_all=open_all, level=level).run()

    return run
