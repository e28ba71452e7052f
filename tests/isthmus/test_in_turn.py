"""Commands that follow each other in one process."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from isthmus import in_turn
from isthmus.in_turn import run_all

MESH = "mesh: shop\noutage_window: 8h\ntopology: complete\nsites: {paris: {}, tokyo: {}}\n"


def test_each_is_answered_with_its_status_and_what_it_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(MESH + "exchanges: [{name: orders}]\n")
    (tmp_path / "bad.yaml").write_text(MESH + "exchanges: [{nam: orders}]\n")
    asked = [["validate", str(file)], ["validate", str(tmp_path / "bad.yaml")], ["no-such-thing"]]
    answers = io.StringIO()
    run_all(map(json.dumps, asked), answers)
    good, bad, unknown = map(json.loads, answers.getvalue().splitlines())
    assert good["status"] == 0
    assert "shop" in good["out"]
    assert bad["status"] != 0
    assert unknown["status"] == 2
    said = capsys.readouterr().err
    assert "nam" in said
    assert "no-such-thing" in said


def test_an_unforeseen_failure_ends_all_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(in_turn, "app", fails)
    answers = io.StringIO()
    with pytest.raises(RuntimeError, match="unforeseen"):
        run_all(['["status"]', '["--version"]'], answers)
    assert answers.getvalue() == ""
