"""Boards for Grafana: made by their script, of metrics that exist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.boards import FOLDER, WIDTH, boards
from tests.deploy.series_names import names_in, series_names

BOARDS = {name: json.loads(content) for name, content in boards().items()}


def test_the_boards_are_current() -> None:
    files = {file.name: file.read_text() for file in FOLDER.iterdir()}
    assert files == boards(), "run: .venv/bin/python scripts/boards.py"


@pytest.mark.parametrize("name", BOARDS)
def test_each_metric_of_a_board_exists(name: str) -> None:
    text = json.dumps(BOARDS[name])
    assert names_in(text) - series_names() == set()


@pytest.mark.parametrize("name", BOARDS)
def test_panels_of_a_board_lie_beside_each_other_and_say_what_they_show(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        assert panel["description"].endswith("."), panel["title"]
        place: dict[str, Any] = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in columns for y in rows}
        assert columns.stop <= WIDTH
        assert not taken & cells, panel["title"]
        taken |= cells
