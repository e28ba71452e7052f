"""A report of a process that has rows of every section, as `RelayProcess.measurements` makes it."""

from __future__ import annotations

from typing import Any

from relay.delay_histogram import DelayHistogram, DelaySnapshot


def _delays(*delays_s: float) -> DelaySnapshot:
    histogram = DelayHistogram()
    for delay_s in delays_s:
        histogram.observe(delay_s)
    return histogram.snapshot()


_LANES = {"normal": {"state": "running", "sent": 3}, "bulk": {"state": "lagging", "sent": 2}}
_HELD = {"epoch": 3, "messages_s": 5, "rows": 1200, "waiting_bytes": 9, "journal_away_s": None}

REPORT: dict[str, Any] = {
    "pid": 1,
    "mesh": "acme",
    "revision": "1a2b",
    "version": "0.2.0",
    "python": "3.11.2",
    "outage_window_s": 3600.0,
    "retention_s": 4200.0,
    "trace_spans": 40,
    "trace_spans_lost": 2,
    "sites": {
        "paris": {
            "node_pid": 1,
            "state": "running",
            "core": "native",
            "revision": "1a2b",
            "file_problem": "",
            "egress_messages": -1,
            "dead_letters_waiting": 2,
            "gaps": [{"stage": "link"}],
            "delivered": 7,
            "waiting_exchanges": {"orders": "no such exchange"},
            "log": {"appended_batches": 5, "fill": 0.25},
            "barrier_memory_s": 4200.0,
            "certificates": {"/pki/paris.pem": 1.8e9},
            "packing_delay": DelaySnapshot.total([]),
            "end_to_end": {("tokyo", "orders"): _delays(0.02, 0.2, 7200.0)},
            "links_in": [
                {
                    "from": "tokyo",
                    "to": "paris",
                    "state": "down",
                    "arrived": 4,
                    "dropped": {"damaged": 1},
                    "lanes": {"bulk": {"state": "down", "arrived": 4}},
                }
            ],
            "group": {
                "away": "",
                "rate": 1000,
                "published": 4,
                "heard": {"tokyo": {"s_ago": 2.5, "by_links": 1}, "lima": {"s_ago": None}},
            },
        },
        "oslo": {
            "state": "standby",
            "core": "pure",
            "takeovers": 1,
            "slots": [
                {"takeovers": 1, "slot": _HELD, "content": {"stored": 3, "gone": 0}},
                {"takeovers": 0, "copy": {"row": 1199, "followed_s": 0.2}},
            ],
        },
    },
    "links": [
        {"from": "paris", "to": "tokyo", "state": "down", "lag_messages": 3},
        {
            "from": "tokyo",
            "to": "paris",
            "state": "lagging",
            "clock_ahead_ms": 1500,
            "sent": 5,
            "skipped": {"the receiver has it": 2},
            "lanes": _LANES,
        },
    ],
}
