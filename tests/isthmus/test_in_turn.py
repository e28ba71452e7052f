"""Commands that follow each other in one process."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from isthmus import cli
from isthmus.in_turn import run, run_all

MESH = "mesh: shop\noutage_window: 8h\ntopology: complete\nsites: {paris: {}, tokyo: {}}\n"


def test_each_is_answered_with_its_status_and_what_it_said(tmp_path: Path) -> None:
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
    assert "nam" in bad["out"] + bad["error"]
    assert unknown["status"] == 2
    assert "no-such-thing" in unknown["error"]


def test_what_fails_unforeseen_ends_that_command_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(cli, "app", fails)
        ended = run(["status"])
    assert ended.status == 1
    assert "RuntimeError: unforeseen" in ended.error
    assert run(["--version"]).status == 0
