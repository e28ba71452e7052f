"""With which words a repair asks for its second audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.commands.audit import _asked
from isthmus.repair.lost import AuditFolder, Lost
from isthmus.repair.second_audit import second_audit
from relay.batches.batch import BatchName

REPORT = {
    "from": "2026-11-21T00:00:00.000Z",
    "to": "2026-11-22T00:00:00.000Z",
    "level": "fingerprint",
    "ledger": "/state/sites",
}


def second_audit_words(*lost: Lost, master: str | None = None, **report: Any) -> str:
    folder = AuditFolder(Path("out"), {**REPORT, **report}, list(lost))
    return " ".join(second_audit(folder, Path("mesh.yaml"), Path("out/after"), Path("st"), master))


def test_the_same_time_and_level_of_the_same_ledgers() -> None:
    assert second_audit_words() == (
        "audit mesh.yaml --from 2026-11-21T00:00:00.000Z --to 2026-11-22T00:00:00.000Z"
        " --level fingerprint --ledger /state/sites --out out/after --state st --json"
    )


def test_the_options_of_the_first_audit_are_repeated() -> None:
    asked = {"ledger": "s3a://l", "receipts": "/r", "work": "s3a://w", "master": "spark://one"}
    words = second_audit_words(asked=asked)
    for option, value in asked.items():
        assert words.count(f"--{option} {value} ") == 1
    assert "--master spark://two" in second_audit_words(asked=asked, master="spark://two")
    assert "spark://one" not in second_audit_words(asked=asked, master="spark://two")


def test_what_an_earlier_day_left_open_is_within_its_time() -> None:
    name = BatchName.parse("paris/0102030405060708/orders.0>*/1")
    earlier = Lost(name, 0, bytes(16), "tokyo", "2026-11-19T10:00:00Z")
    assert "--from 2026-11-19T10:00:00Z" in second_audit_words(earlier)


def test_a_report_tells_options_so_that_they_hold_in_another_folder(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "receipts").mkdir()
    monkeypatch.chdir(tmp_path)
    assert _asked(receipts="receipts", work="s3a://scratch", master=None) == {
        "receipts": str(tmp_path / "receipts"),
        "work": "s3a://scratch",
    }
