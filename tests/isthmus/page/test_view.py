"""Figures of the page, from a status report."""

from __future__ import annotations

from typing import Any

from isthmus.page.view import MOST_TEXT, CounterRates, changes, mesh_view
from relay.ledger.rows import Stage
from relay.log.open_gap import GoneRange, OpenGap
from tests.isthmus.page.page_world import link_report, site_report


def view_of(*, now: float = 0.0, rates: CounterRates | None = None, **parts: Any) -> dict[str, Any]:
    content = {"mesh": "acme", "revision": "r1", "notes": [], "sites": {}, "links": [], **parts}
    return mesh_view(content, rates or CounterRates(), now, {"syd-1": "sydney"}.get)  # type: ignore[arg-type]


def test_rates_are_taken_over_the_last_seconds() -> None:
    rates = CounterRates()
    assert rates.of("a", 100, now=0.0) is None
    assert rates.of("a", 150, now=5.0) == 10.0
    assert rates.of("a", 150, now=15.0) == 0.0
    assert rates.of("a", 350, now=25.0) == 20.0


def test_a_counter_of_a_new_process_begins_anew() -> None:
    rates = CounterRates()
    rates.of("a", 100, now=0.0)
    assert rates.of("a", 3, now=1.0) is None
    assert rates.of("a", 5, now=2.0) == 2.0
    assert rates.of("a", None, now=3.0) is None
    assert rates.of("a", 50, now=4.0) is None


def test_a_link_has_its_figures_and_its_lanes() -> None:
    rates = CounterRates()
    lane = {"state": "running", "reason": "", "lag_seconds": 0.5, "window_used_bytes": 7}
    link = link_report("a", "b", state="stalled", reason="why", max_rate=1000, lanes={"low": lane})
    view_of(rates=rates, links=[link])
    later = {**link, "acked_bytes": 500, "acked_messages": 5}
    found = view_of(now=5.0, rates=rates, links=[later])["links"]["a-b"]
    assert (found["state"], found["reason"], found["max_rate"]) == ("stalled", "why", 1000)
    assert (found["messages_s"], found["bytes_s"]) == (1.0, 100.0)
    assert (found["window_used"], found["window"]) == (0, 8 << 20)
    assert (found["lanes"]["low"]["lag_s"], found["lanes"]["low"]["window_used"]) == (0.5, 7)


def test_a_site_has_its_troubles_beside_its_state() -> None:
    site = site_report(
        standing_flows={"paris/orders": "the broker is away"},
        deferring_flows={"paris/letters": "a full queue"},
        deferred_waiting=3,
        waiting_exchanges={"prices": "no such queue"},
        not_understood={"lima": "format 9"},
        ledger_failure="disk full",
        nodes={"one": {"state": "standby", "reason": "two runs it", "pid": 3}},
    )
    found = view_of(sites={"paris": site})["sites"]["paris"]
    assert found["troubles"] == [
        "paris/orders stands: the broker is away",
        "paris/letters tries again while later messages go on: a full queue",
        "egress of prices: no such queue",
        "takes nothing from lima: format 9",
        "the ledger is not written: disk full",
    ]
    assert found["deferred"] == 3
    assert found["nodes"] == {"one": {"state": "standby", "reason": "two runs it"}}


def test_a_gap_is_shown_by_the_names_of_sites_and_bounded() -> None:
    gone = tuple(GoneRange("syd-1", f"{run:02}", "orders", 1, 2, 2, 9) for run in range(30))
    gap = OpenGap(Stage.LINKED_OUT, "x", 4, 9, 1000, link="a-b", gone=gone, is_all_named=True)
    found = view_of(sites={"a": site_report(gaps=[gap.as_json()])})["sites"]["a"]["gaps"][0]
    assert (found["id"], found["stage"], found["messages"]) == (gap.id, "link a-b", 270)
    assert found["missing"][1].startswith("sydney, run 00, orders")
    assert len(found["missing"]) == 21
    assert "11 lines more" in found["missing"][-1]


def test_a_long_reason_is_cut() -> None:
    found = view_of(sites={"a": site_report(reason="x" * 100_000)})["sites"]["a"]
    assert len(found["reason"]) < MOST_TEXT + 10


def test_changes_have_what_differs_and_what_is_gone() -> None:
    before = view_of(sites={"a": site_report(), "b": site_report()}, links=[link_report("a", "b")])
    after = view_of(sites={"a": site_report(state="down")})
    found = changes(before, after)
    assert found["sites"] == {"a": after["sites"]["a"]}
    assert (found["links"], found["gone_sites"], found["gone_links"]) == ({}, ["b"], ["a-b"])
    assert changes(after, after)["sites"] == {}
