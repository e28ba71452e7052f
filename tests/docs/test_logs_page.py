"""Every line that a node logs has an event with a stable name, and docs/logs.md has them all."""

from __future__ import annotations

import json
import logging

import pytest

from isthmus.log_events import FIELDS, LOG_EVENTS, JsonLines
from scripts.logs_page import PAGE, LogCall, log_calls, page

CALLS = list(log_calls())


def test_the_page_of_logs_is_current() -> None:
    assert PAGE.read_text() == page(), "run: .venv/bin/python -m scripts.logs_page"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.path}:{call.line}")
def test_a_call_that_logs_gives_an_event_that_is_known_and_keys_that_are_printed(
    call: LogCall,
) -> None:
    assert call.event in LOG_EVENTS
    assert set(call.extra) <= set(FIELDS)


def test_every_event_is_logged_somewhere() -> None:
    assert {call.event for call in CALLS} == set(LOG_EVENTS)


def test_a_json_line_has_the_event_and_what_the_line_is_about() -> None:
    record = logging.makeLogRecord(
        {
            "name": "relay.links",
            "levelname": "ERROR",
            "msg": "link %s stops",
            "args": ("a>b",),
            "event": "link-stopped-at-gap",
            "link": "a>b",
        }
    )
    line = json.loads(JsonLines().format(record))
    assert line["message"] == "link a>b stops"
    assert (line["event"], line["link"]) == ("link-stopped-at-gap", "a>b")
    assert "site" not in line


def test_a_line_about_a_batch_has_the_id_of_its_trace_where_batches_are_traced() -> None:
    record = logging.makeLogRecord({"msg": "hello", "batch": "paris/01/orders.0>*/7"})
    line = json.loads(JsonLines(lambda batch: f"trace of {batch}").format(record))
    assert line["trace_id"] == "trace of paris/01/orders.0>*/7"
    assert "trace_id" not in json.loads(JsonLines().format(record))


def test_a_line_about_no_batch_has_no_trace() -> None:
    lines = JsonLines(lambda batch: "trace")
    assert "trace_id" not in json.loads(lines.format(logging.makeLogRecord({"msg": "hello"})))


def test_a_line_of_a_library_has_no_event() -> None:
    line = json.loads(JsonLines().format(logging.makeLogRecord({"msg": "hello"})))
    assert (line["message"], "event" in line) == ("hello", False)
