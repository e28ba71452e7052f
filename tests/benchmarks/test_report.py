"""docs/performance.md says what the committed results say."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compare.arena import Round
from benchmarks.compare.machine import commit
from benchmarks.compare.make_report import PAGE, committed, notes
from benchmarks.compare.report import page
from benchmarks.compare.row import Bar, Measure, both
from benchmarks.compare.runner import held, summary


def a_round(way: str, seconds: float, missing: int = 0) -> Round:
    return Round(
        way=way,
        deliveries=1000,
        seconds=seconds,
        missing=missing,
        duplicates=0,
        out_of_order=0,
        broker_us=100.0,
        relay_us=0.0 if way == "federation" else 12.0,
        load_us=4.0,
        broker_mb=200.0,
        relay_mb=0.0 if way == "federation" else 80.0,
        p50_ms=1.0,
        p99_ms=2.0,
        message_bytes=1000,
    )


def result(version: str, ours_s: tuple[float, ...]) -> dict[str, Any]:
    cases = {
        "1 KiB": {
            "ways": {
                "isthmus": summary([a_round("isthmus", seconds) for seconds in ours_s]),
                "federation": summary([a_round("federation", 0.2, missing=3)]),
            },
            "floor_broker_us": 77.7,
        }
    }
    return {
        "row": "hop",
        "title": "one hop",
        "rabbitmq": version,
        "commit": "abc",
        "at": "2026-11-23T00:00:00",
        "machine": {"cores": 2, "processor": "some"},
        "versions": {"rabbitmq": f"{version}.1", "python": "3.11"},
        "cases": cases,
        "bars": [held(Bar("1 KiB", Measure.RATE, both(1.4, 3.0), "federation"), cases, version)],
    }


def test_bars_are_ratios_of_medians_and_told_with_what_was_wanted() -> None:
    results = {"hop": {"3.10": result("3.10", (0.1, 0.125, 0.08)), "4.0": result("4.0", (0.1,))}}
    told = page(results, {})
    line = next(line for line in told.splitlines() if line.startswith("| [hop]"))
    assert line.endswith("| at least 1.4 / 3 | **2.00** | 2.00 (not reached) | not run |")


def test_a_row_that_was_not_run_on_a_version_says_so() -> None:
    told = page({"hop": {"3.10": result("3.10", (0.1,))}}, {})
    assert next(line for line in told.splitlines() if line.startswith("| [hop]")).endswith(
        "| not run |"
    )


def test_a_row_shows_median_least_and_most_and_what_was_lost_and_the_floor() -> None:
    told = page({"hop": {"3.10": result("3.10", (0.1, 0.125, 0.08))}}, {"hop": "Because of X."})
    assert "| 1 KiB | isthmus | 10,000 (8,000 to 12,500) | 100 | 12.0 | 80.0 | 0, 0 |" in told
    assert "| 1 KiB | federation | 5,000 | 100 |  |  | 3, 0 |" in told
    assert "| 1 KiB | _floor_ |  | 77.7 |  |  | |" in told
    assert "the load itself took 4.0 us" in told
    assert told.rstrip().endswith("Because of X.")


def test_the_page_of_the_docs_is_that_of_the_committed_results() -> None:
    results = copy.deepcopy(committed())
    assert PAGE.read_text() == page(results, notes(), charts=results), "run `make bench-report`"


def test_what_was_tried_stands_at_the_end() -> None:
    told = page({"hop": {"3.10": result("3.10", (0.1,))}}, {"tried": "It was slower."})
    assert told.endswith("## What was tried\n\nIt was slower.\n")
    assert "What was tried" not in page({}, {})


def test_a_checkout_without_git_has_no_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() == ""
