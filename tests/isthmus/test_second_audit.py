"""With which words a repair asks for its second audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.commands.audit import _given_options
from isthmus.lost_messages import AuditFolder, Lost, second_audit
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
    options = {"ledger": "s3a://l", "receipts": "/r", "work": "s3a://w", "master": "spark://one"}
    words = second_audit_words(asked=options)
    for option, value in options.items():
        assert words.count(f"--{option} {value} ") == 1
    assert "--master spark://two" in second_audit_words(asked=options, master="spark://two")
    assert "spark://one" not in second_audit_words(asked=options, master="spark://two")


def test_messages_left_open_by_an_earlier_audit_are_within_the_time() -> None:
    name = BatchName.parse("paris/0102030405060708/orders.0>*/1")
    earlier = Lost(name, 0, bytes(16), "tokyo", "2026-11-19T10:00:00Z")
    assert "--from 2026-11-19T10:00:00Z" in second_audit_words(earlier)


def test_a_report_tells_options_so_that_they_hold_in_another_folder(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "receipts").mkdir()
    monkeypatch.chdir(tmp_path)
    assert _given_options(receipts="receipts", work="s3a://scratch", master=None) == {
        "receipts": str(tmp_path / "receipts"),
        "work": "s3a://scratch",
    }
