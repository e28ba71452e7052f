"""The log of the page's orders."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.page.order_log import KEPT, MOST_TEXT, ORDERS_FILE, OrderLog


def test_an_order_is_in_the_log_with_who_and_how_it_ended(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    begun = log.begin("ann at 127.0.0.1", "pause", "isthmus pause m.yaml")
    assert log.latest()[0].outcome == "running"
    log.end(begun, 0, "paris: paused")
    failed = log.begin("bob", "resume", "isthmus resume m.yaml")
    log.end(failed, 1, "why")
    (last, first) = OrderLog(tmp_path).latest()
    assert (first.who, first.outcome, first.text) == ("ann at 127.0.0.1", "done", "paris: paused")
    assert (last.who, last.outcome, last.ended_at >= last.at) == ("bob", "failed", True)


def test_an_order_whose_page_ended_before_it_has_no_known_outcome(tmp_path: Path) -> None:
    OrderLog(tmp_path).begin("ann", "repair", "isthmus repair")
    assert OrderLog(tmp_path).latest()[0].outcome == "unknown"


def test_a_line_that_a_power_cut_has_halved_spoils_no_other(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    log.end(log.begin("ann", "pause", "isthmus pause"), 0, "")
    file = tmp_path / ORDERS_FILE
    with file.open("ab") as out:
        out.write(b'{"id": "x", "at"')
    log = OrderLog(tmp_path)
    log.begin("bob", "resume", "isthmus resume")
    assert [one.who for one in OrderLog(tmp_path).latest()] == ["bob", "ann"]
    with file.open("ab") as out:
        out.write(b'[]\n{"id": "y", "command": 1}\n{"id": "none", "at": "", "status": 0}\n\xff\n')
    assert [one.who for one in OrderLog(tmp_path).latest()] == ["bob", "ann"]


def test_the_log_in_memory_is_bounded(tmp_path: Path) -> None:
    log = OrderLog(tmp_path)
    begun = log.begin("ann", "pause", "first")
    log.end(begun, 1, "x" * 100_000)
    assert len(log.latest()[0].text) == MOST_TEXT
    for number in range(KEPT):
        log.begin("ann", "pause", str(number))
    assert len(log.latest()) == KEPT
    assert log.latest()[-1].command == "0"


def test_an_order_that_cannot_be_logged_raises(tmp_path: Path) -> None:
    log = OrderLog(tmp_path / "nothing")
    with pytest.raises(OSError, match="nothing"):
        log.begin("ann", "pause", "isthmus pause")
