"""A day on which all adds up opens nothing, and what it answers then has the columns of what is
opened on others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_audit.compare import reading
from spark_audit.generate.generator import generate_ledgers
from spark_audit.judge.verdicts import JUDGED
from spark_audit.level import Level
from spark_audit.report.report import AuditVerdict
from tests.spark_audit.conftest import DAY, AuditOf

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("level", Level)
def test_a_day_on_which_all_adds_up_opens_nothing(
    tmp_path: Path, audit_of: AuditOf, level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_ledgers(tmp_path / "made", 3, 3_000, 1, DAY, [])

    def opened(*_: Any) -> Any:
        raise AssertionError("opened")

    monkeypatch.setattr(reading, "opened_messages", opened)
    report = audit_of(tmp_path / "made", level=level)
    assert report.verdict is AuditVerdict.PROVEN, report.as_json()
    assert report.totals == {"delivered": 6_000}
    assert report.table.count() == 0


def test_what_is_opened_has_the_columns_that_nothing_has(
    tmp_path: Path, audit_of: AuditOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.types import StructType

    judged: list[Any] = []

    def opened(*given: Any) -> Any:
        judged.append(reading_opened(*given))
        return judged[-1]

    reading_opened = reading.opened_messages
    monkeypatch.setattr(reading, "opened_messages", opened)
    generate_ledgers(tmp_path / "made", 3, 3_000, 1, DAY, ["lost"])
    assert audit_of(tmp_path / "made").verdict is AuditVerdict.FINDINGS
    declared = StructType.fromDDL(JUDGED)
    assert [(one.name, one.dataType.simpleString()) for one in judged[0].schema] == [
        (one.name, one.dataType.simpleString()) for one in declared
    ]
