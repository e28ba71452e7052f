"""What `isthmus status` shows to people."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from isthmus.commands.status import tables
from isthmus.status_report import StatusReport


def site(**more: Any) -> dict[str, Any]:
    counts = ("duplicates", "redelivered", "unrouted", "expired", "dead", "quarantined")
    quiet = dict.fromkeys(("egress_messages", "delivered", *counts), 0)
    return {"state": "running", "reason": "", **quiet, **more}


def link(sender: str, receiver: str, **more: Any) -> dict[str, Any]:
    lag = {"lag_messages": 0, "lag_bytes": 0, "lag_seconds": 0.0}
    return {"from": sender, "to": receiver, "state": "running", "reason": "", **lag, **more}


def shown(sites: dict[str, dict[str, Any]], *links: dict[str, Any], width: int = 80) -> str:
    told = {"mesh": "acme", "revision": "0123456789ab", "sites": sites, "links": list(links)}
    console = Console(file=io.StringIO(), width=width)
    console.print(tables(StatusReport(told)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_words_and_figures_are_whole_on_a_terminal_of_80_columns() -> None:
    text = shown(
        {
            "copenhagen-1": site(
                state="starting", delivered=123_456_789, duplicates=1_234, dead=56, quarantined=7
            ),
            "paris": site(egress_messages=1_000_000),
        },
        link("copenhagen-1", "paris", state="starting", lag_bytes=123_456_789),
    )
    assert "…" not in text
    words = text.replace("│", " ").split()
    for word in ("copenhagen-1", "starting", "123,456,789", "1,234", "quarantined", "1,000,000"):
        assert word in words


def test_of_the_seldom_counts_only_those_that_are_not_0_are_named() -> None:
    text = shown({"paris": site(identity_conflicts=3), "tokyo": site()})
    assert "3 identity conflicts" in text
    assert "dead" not in text


def test_a_figure_that_nobody_knows_is_a_question_mark() -> None:
    text = shown({"paris": site(state="down", delivered=None, dead=None)})
    assert "?" in next(line for line in text.splitlines() if "paris" in line)


def test_an_exchange_that_waits_is_named_with_its_reason_and_what_nobody_wants_is_counted() -> None:
    waits = {"orders": "waiting for a neighbour's log"}
    text = shown({"paris": site(waiting_exchanges=waits, unwanted=12)})
    assert "12 unwanted" in text
    assert "paris: egress of orders: waiting for a neighbour's log" in text
