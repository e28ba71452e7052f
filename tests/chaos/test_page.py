"""The timeline's files: faults and rates where they belong, and nothing fetched or run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.chaos import chart, report
from tests.chaos.account import Account
from tests.chaos.outcome import Drain, Outcome
from tests.chaos.schedule import Fault
from tests.chaos.timeline import Sample, Timeline

SCHEDULE = [
    Fault(1, "kill-broker", "tokyo", 10.0, 5.0),
    Fault(2, "cut", "paris-tokyo", 20.0, 30.0, "held"),
    Fault(3, "log-deleted", "sydney-lima", 60.0, 10.0, "there"),
]


def sample(at_s: float, rate: float | None, tokyo: str = "running") -> Sample:
    sites = dict.fromkeys(("paris", "sydney", "lima"), "running") | {"tokyo": tokyo}
    links = {"paris-tokyo": "running", "tokyo-paris": "down"}
    return Sample(at_s, {"paris": 10.0, "tokyo": rate}, 40.0, {**sites, **links})


def an_outcome(*broken: str) -> Outcome:
    timeline = Timeline(lambda: 0.0)
    for fault in SCHEDULE:
        strike = timeline.strike(fault)
        strike.began_s, strike.healed_s = fault.at_s + 1, fault.ends_s + 2
    timeline.samples += [sample(0.0, 20.0), sample(50.0, None, "down"), sample(100.0, 5.0)]
    counts = {"confirmed": 12345, "refused": 1, "indeterminate": 2}
    return Outcome(
        timeline,
        SCHEDULE,
        "ring",
        "3.10.8",
        Account(list(broken), {"paris": 7}, {"paris": 8}),
        Drain(600, 30.0, 12.5),
        {"paris": counts},
        {"paris": 4711},
    )


def test_both_files_are_written_and_the_page_needs_nothing_else(tmp_path: Path) -> None:
    told, shown = report.write(an_outcome(), tmp_path / "out", 4, "python -m tests.chaos --seed 4")
    assert json.loads(told.read_text())["schedule"] == [fault.as_json() for fault in SCHEDULE]
    page = shown.read_text()
    assert "Every promise held" in page
    assert not re.search(r"<script|<link|src=|href=|url\(|@import", page)
    for said in (
        "12,345",
        "4,711",
        "python -m tests.chaos --seed 4",
        "kill-broker",
        "12.5 s",
        "ring",
        "3.10.8",
    ):
        assert said in page


def test_what_did_not_hold_stands_in_both(tmp_path: Path) -> None:
    told, shown = report.write(an_outcome("I1 at <paris>: 3 missing"), tmp_path, 4, "again")
    assert json.loads(told.read_text())["broken"] == ["I1 at <paris>: 3 missing"]
    assert "I1 at &lt;paris&gt;: 3 missing" in shown.read_text()
    assert "1 promise did not hold" in shown.read_text()


def test_faults_stand_where_they_struck_and_when_they_did() -> None:
    timeline = an_outcome().timeline
    rows = chart.rows(
        ("paris", "tokyo", "sydney"),
        (("paris", "tokyo"), ("sydney", "lima")),
        timeline.strikes.values(),
        timeline.samples,
        chart.Scale(0.0, 100.0),
    )
    found = {row.name: [(one.label, one.left, one.width) for one in row.faults] for row in rows}
    assert found == {
        "paris": [],
        "tokyo": [("kill-broker", 11.0, 6.0)],
        "sydney": [("log-deleted", 61.0, 11.0)],
        "paris-tokyo": [("cut", 21.0, 31.0)],
        "sydney-lima": [("log-deleted", 61.0, 11.0)],
    }


def test_each_stretch_of_one_state_is_a_piece() -> None:
    samples = an_outcome().timeline.samples
    pieces = chart.strip("tokyo", samples, chart.Scale(0.0, 100.0))
    assert [(one.label, one.left, one.width, one.tone) for one in pieces] == [
        ("running", 0.0, 50.0, "good"),
        ("down", 50.0, 50.0, "bad"),
        ("running", 100.0, 0.0, "good"),
    ]


def test_a_curve_has_a_gap_where_nobody_answered() -> None:
    samples = an_outcome().timeline.samples
    scale = chart.Scale(0.0, 100.0)
    assert chart.most_per_s(samples) == 20.0
    assert chart.curves("tokyo", samples, scale, 20.0) == [
        "0,100 0,0 0,100",
        "100,100 100,50 100,100",
    ]
    assert len(chart.curves("paris", samples, scale, 20.0)) == 1


def test_a_node_that_was_started_again_counts_from_nothing() -> None:
    moment = 0.0
    timeline = Timeline(lambda: moment)

    def look(delivered: int | None) -> float | None:
        told = {"sites": {"paris": {"state": "running", "delivered": delivered}}, "links": []}
        timeline.look(told, 0)
        return timeline.samples[-1].delivered_per_s["paris"]

    assert look(100) == 0.0
    moment = 2.0
    assert look(140) == 20.0
    moment = 4.0
    assert look(None) is None
    moment = 6.0
    assert look(10) == 5.0
