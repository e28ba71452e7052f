"""What is read of an audit's folder, and how the command answers to one that is none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from isthmus.cli import app
from isthmus.lost_messages import BadAudit, Lost, read_audit
from relay.batches.batch import BatchName

REPORT: dict[str, Any] = {
    "mesh": "acme",
    "from": "2026-11-21T00:00:00.000Z",
    "to": "2026-11-22T00:00:00.000Z",
    "ledger": "nowhere",
    "level": "exact",
    "findings": {"lost": 2, "looped": 1},
    "totals": {"delivered": 7, "lost": 2},
    "verdict": "findings",
}
FILE = "mesh: acme\ntopology: complete\noutage_window: 72h\nexchanges: [{name: orders}]\n"
FILE += "sites: {paris: {}, tokyo: {}}\n"
PUBLISHED = datetime(2026, 11, 21, 8, 30, tzinfo=UTC)


def finding(kind: str = "lost", number: int = 1) -> dict[str, Any]:
    return {
        "kind": kind,
        "identity": None if kind == "looped" else number.to_bytes(16).hex(),
        "destination": "tokyo",
        "published": PUBLISHED,
        "batch": f"paris/0102030405060708/orders.0>*/{number}",
        "entry": None if kind == "looped" else 3,
    }


def write(folder: Path, *findings: dict[str, Any], **report: Any) -> Path:
    folder.mkdir(exist_ok=True)
    table = pa.Table.from_pylist(
        list(findings),
        pa.schema(
            [
                *((name, pa.string()) for name in ("kind", "identity", "destination", "batch")),
                ("published", pa.timestamp("us", tz="UTC")),
                ("entry", pa.int32()),
            ]
        ),
    )
    parts = folder / "findings.parquet"
    parts.mkdir(exist_ok=True)
    pq.write_table(table, parts / "part-0.parquet")
    (parts / "_SUCCESS").touch()
    (folder / "report.json").write_text(json.dumps({**REPORT, **report}))
    return folder


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    file = folder.parent / "mesh.yaml"
    file.write_text(FILE)
    state = str(folder.parent / "state")
    result = CliRunner().invoke(
        app, ["repair", str(file), "--audit", str(folder), "--state", state, *words]
    )
    return result.exit_code, result.stdout, result.stderr


def test_the_lost_ones_are_read_in_order(tmp_path: Path) -> None:
    audit = read_audit(write(tmp_path / "a", finding(number=2), finding("looped"), finding()))
    names = [BatchName.parse(f"paris/0102030405060708/orders.0>*/{n}") for n in (1, 2)]
    assert audit.lost == [
        Lost(name, 3, name.sequence.to_bytes(16), "tokyo", "2026-11-21T08:30:00Z") for name in names
    ]
    assert audit.other_findings == {"looped": 1}


def test_a_folder_that_no_audit_wrote_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", write(tmp_path / "a", {**finding(), "batch": "what?"})):
        with pytest.raises(BadAudit, match="is no folder that `isthmus audit` wrote"):
            read_audit(folder)
    status, _, said = run(tmp_path / "none")
    assert (status, "is no folder" in said) == (2, True)


def test_an_audit_of_another_mesh_is_refused(tmp_path: Path) -> None:
    status, _, said = run(write(tmp_path / "a", finding(), mesh="other"))
    assert (status, "is an audit of mesh other" in said) == (2, True)


def test_a_rate_that_is_none_is_refused(tmp_path: Path) -> None:
    for rate in ("0", "fast", "-1/s", "inf"):
        status, _, said = run(write(tmp_path / "a", finding()), "--rate", rate)
        assert (status, "say it as 500/s" in said) == (2, True)


def test_where_nothing_is_lost_nothing_is_done(tmp_path: Path) -> None:
    status, said, _ = run(write(tmp_path / "a"))
    assert (status, "there is nothing to repair" in said) == (0, True)


def test_nodes_that_cannot_be_asked_are_named(tmp_path: Path) -> None:
    status, out, said = run(write(tmp_path / "a", finding()), "--no-audit")
    assert status == 2
    assert out == ""
    for site in ("paris", "tokyo"):
        assert f"{site}: its node does not answer here: run this where it runs" in said
    assert "1 looped: that is nothing that a repair mends" in said
    status, out, _ = run(tmp_path / "a", "--no-audit", "--json")
    report = json.loads(out)
    assert (status, report["lost"], len(report["not_asked"]), report["sent"]) == (2, 1, 1, {})
