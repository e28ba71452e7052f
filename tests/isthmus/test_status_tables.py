"""What `isthmus status` shows to people."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from isthmus.commands.status import tables
from isthmus.status import StatusReport


def site(**more: Any) -> dict[str, Any]:
    counts = ("duplicates", "redelivered", "unrouted", "expired", "dead_letters_waiting")
    quiet = dict.fromkeys(("egress_messages", "delivered", *counts), 0)
    return {"state": "running", "reason": "", **quiet, **more}


def link(sender: str, receiver: str, **more: Any) -> dict[str, Any]:
    lag = {"lag_messages": 0, "lag_bytes": 0, "lag_seconds": 0.0}
    return {"from": sender, "to": receiver, "state": "running", "reason": "", **lag, **more}


def tables_text(sites: dict[str, dict[str, Any]], *links: dict[str, Any], width: int = 80) -> str:
    told = {"mesh": "acme", "revision": "0123456789ab", "sites": sites, "links": list(links)}
    console = Console(file=io.StringIO(), width=width)
    console.print(tables(StatusReport(told), Path("mesh.yaml")))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_words_and_figures_are_whole_on_a_terminal_of_80_columns() -> None:
    text = tables_text(
        {
            "copenhagen-1": site(
                state="starting",
                delivered=123_456_789,
                duplicates=1_234,
                dead_letters_waiting=56,
                quarantine_waiting=7,
            ),
            "paris": site(egress_messages=1_000_000),
        },
        link("copenhagen-1", "paris", state="starting", lag_bytes=123_456_789),
    )
    assert "…" not in text
    words = text.replace("│", " ").split()
    for word in ("copenhagen-1", "starting", "123,456,789", "1,234", "quarantine,", "1,000,000"):
        assert word in words


def test_how_far_the_other_clock_is_ahead_stands_beside_the_link() -> None:
    known = link("paris", "tokyo", clock_ahead_ms=-3)
    text = tables_text({"paris": site()}, known, link("tokyo", "paris", clock_ahead_ms=72_340))
    assert "-3 ms" in text
    assert "+72.3 s" in text
    assert "+0 ms" not in tables_text(
        {"paris": site()}, link("tokyo", "paris", clock_ahead_ms=None)
    )


def test_of_the_seldom_counts_only_those_that_are_not_0_are_named() -> None:
    text = tables_text({"paris": site(identity_conflicts=3), "tokyo": site()})
    assert "3 identity conflicts" in text
    assert "dead" not in text


def test_a_site_that_runs_without_the_native_core_is_noted() -> None:
    text = tables_text({"paris": site(core="pure"), "tokyo": site(core="native")}, width=100)
    assert [line for line in text.splitlines() if "native" in line] == [
        line for line in text.splitlines() if "paris" in line
    ]


def test_a_figure_that_nobody_knows_is_a_question_mark() -> None:
    text = tables_text({"paris": site(state="down", delivered=None, dead_letters_waiting=None)})
    assert "?" in next(line for line in text.splitlines() if "paris" in line)


def test_an_exchange_that_waits_is_named_with_its_reason_and_what_nobody_wants_is_counted() -> None:
    waits = {"orders": "waiting for a neighbour's log"}
    text = tables_text({"paris": site(waiting_exchanges=waits, unwanted=12)})
    assert "12 unwanted" in text
    assert "paris: egress of orders: waiting for a neighbour's log" in text


def test_dead_letters_and_quarantine_come_with_the_command_to_look() -> None:
    text = tables_text(
        {
            "paris": site(dead_letters_waiting=1, dead_lettered=9, quarantine_waiting=2_000),
            "tokyo": site(dead_letters_waiting=-1, unrouted=3),
        },
        width=120,
    )
    assert "1 dead letter, 2,000 in quarantine" in text
    assert "paris: 1 dead letter: `isthmus dead-letters list mesh.yaml --site paris`" in text
    assert "paris: 2,000 in quarantine: `isthmus quarantine list mesh.yaml --site paris`" in text
    assert "tokyo: " not in text
    assert "3 unrouted" in text
    assert "unrouted: came to a site where no queue was bound for its key" in text


def test_a_reason_in_brackets_is_shown_as_it_is() -> None:
    assert "paris: down: [Errno 111] refused" in tables_text(
        {"paris": site(state="down", reason="[Errno 111] refused")}
    )


def test_a_reason_of_many_sites_is_shown_once_and_not_for_their_links() -> None:
    away = {"state": "down", "reason": "never started", "delivered": None}
    sites = {f"s{n}": site(**away) for n in range(5)} | {"paris": site()}
    silent = link("s0", "paris", state="unknown", reason="the node of s0 does not answer")
    cut = link("paris", "s0", state="down", reason="nothing heard of s0 for 12 s")
    text = tables_text(sites, silent, cut)
    assert "s0, s1, s2 and 2 more: down: never started" in text
    assert "the node of s0" not in text
    assert "paris -> s0: down: nothing heard of s0 for 12 s" in text


def test_whose_batches_a_node_does_not_know_how_to_read_is_said_with_the_reason() -> None:
    why = "oslo has a batch that paris cannot read"
    text = tables_text({"paris": site(not_understood={"oslo": why})}, width=120)
    assert f"paris takes nothing from oslo: {why}" in text


def test_of_a_cluster_each_end_has_the_node_that_it_is_connected_to() -> None:
    text = tables_text(
        {"paris": site(connected_to={"egress": "h1:5672", "log": "h2:5552"}), "tokyo": site()},
        link("paris", "tokyo", connected_to="h3:5672", receiver_connected_to="h4:5672"),
    )
    rows = [" ".join(line.replace("│", " ").split()) for line in text.splitlines()]
    for row in (
        "paris: egress h1:5672",
        "paris: log h2:5552",
        "paris -> tokyo: end at paris h3:5672",
        "paris -> tokyo: end at tokyo h4:5672",
    ):
        assert row in rows
    assert "broker node" not in tables_text({"paris": site()}, link("paris", "tokyo"))
