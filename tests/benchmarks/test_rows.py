"""Every row can be run and told of as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare import ways
from benchmarks.compare.row import Row
from benchmarks.compare.rows import ROWS


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_bars_are_about_cases_and_ways_that_are_run(row: Row) -> None:
    cases = {case.name for case in row.cases}
    for bar in row.bars:
        assert {bar.case, bar.against_case or bar.case} <= cases
        assert {bar.way, bar.against or bar.way} <= set(row.ways)
        assert bar.wanted.keys() == {"3.10", "4.0", "4.3"}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_what_runs_quick_is_a_shorter_one_of_the_row_s_cases(row: Row) -> None:
    whole = {case.name: case for case in row.cases}
    for case in row.quick or ():
        assert case.load.count < whole[case.name].load.count
        assert case.condition == whole[case.name].condition


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_layouts_lead_from_each_origin_to_each_destination(row: Row) -> None:
    layout = row.layout()
    links: dict[str, set[str]] = {}
    for sender, receiver in layout.links:
        links.setdefault(sender, set()).add(receiver)
    for origin in layout.origins:
        reached = {origin}
        for _ in range(layout.hops):
            reached |= {site for one in reached for site in links.get(one, ())}
        assert set(layout.destinations) <= reached
    assert layout.remote_deliveries > 0


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_ways_have_the_names_that_the_row_calls_them_by(row: Row, tmp_path: Path) -> None:
    assert [way.name for way in ways.make(row.ways, tmp_path)] == list(row.ways)
