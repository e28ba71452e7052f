"""Writes the boards for Grafana, deploy/grafana/*.json: `python scripts/boards.py`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
WIDTH = 24
"""Columns of a board."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `queries` are pairs of expression and legend."""

    title: str
    kind: str
    queries: Sequence[tuple[str, str]]
    about: str
    unit: str = "short"
    width: int = 8
    height: int = 7
    limits: tuple[float, ...] = ()
    """Values from which a number is yellow, and red."""

    @property
    def _steps(self) -> list[dict[str, Any]]:
        colours, limits = ("green", "orange", "red"), self.limits
        if self.kind == "state-timeline":
            colours, limits = ("red", "green", "green"), (1,)
        pairs = zip(colours, (None, *limits), strict=False)
        return [{"color": colour, "value": limit} for colour, limit in pairs]

    def as_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """Return the panel's JSON at a place of the board, in columns and rows."""
        defaults = {"unit": self.unit, "thresholds": {"mode": "absolute", "steps": self._steps}}
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": _OPTIONS.get(self.kind, {}),
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": _SOURCE,
                    "expr": expression,
                    "legendFormat": legend,
                    "instant": self.kind in ("stat", "table"),
                    "range": self.kind not in ("stat", "table"),
                    **({"format": "table"} if self.kind == "table" else {}),
                }
                for place, (expression, legend) in enumerate(self.queries)
            ],
        }


_OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"},
    "timeseries": {"tooltip": {"mode": "multi", "sort": "desc"}},
    "state-timeline": {"mergeValues": True, "showValue": "never"},
}


def _stat(title: str, expression: str, about: str, **more: Any) -> Panel:
    return Panel(title, "stat", [(expression, "")], about, width=4, height=4, **more)


def _graph(title: str, about: str, *queries: tuple[str, str], **more: Any) -> Panel:
    return Panel(title, "timeseries", queries, about, **more)


def _quantiles(metric: str, by: str, selector: str = "") -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({metric}_bucket{selector}[{_RATE}])))"


MESH = [
    _stat(
        "Nodes that answer",
        'sum(up{job="isthmus"}) / count(up{job="isthmus"})',
        "Part of the nodes that Prometheus reaches.",
        unit="percentunit",
    ),
    _stat(
        "Sites that do not run",
        'count(max by (site) (isthmus_site_state{isthmus_site_state="running"}) == 0) or vector(0)',
        "Stopped, down, blocked, paused or on their way out.",
        limits=(1, 2),
    ),
    _stat(
        "Links that do not carry",
        "count(sum by (from, to) (isthmus_link_state{isthmus_link_state=~"
        '"running|lagging"}) == 0) or vector(0)',
        "Neither running nor lagging.",
        limits=(1, 2),
    ),
    _stat(
        "Longest lag",
        "max(isthmus_link_lag_seconds)",
        "Age of the oldest message that some neighbour's log lacks.",
        unit="s",
        limits=(60, 600),
    ),
    _stat(
        "Dead letters and quarantine",
        "sum(isthmus_site_dead_letters_waiting) + sum(isthmus_site_quarantine_waiting)",
        "Messages that wait for a person.",
        limits=(1, 100),
    ),
    _stat(
        "Last audit",
        "time() - min(isthmus_audit_end_timestamp_seconds)",
        "Time since the last audit ended.",
        unit="s",
        limits=(26 * 3600, 50 * 3600),
    ),
    Panel(
        "Sites",
        "state-timeline",
        [
            (
                "max by (site) (isthmus_site_state{isthmus_site_state="
                '~"running|paused|draining|drained|quiescing|quiesced"})',
                "{{site}}",
            )
        ],
        "1 while the site works or an order holds it, 0 while it is stopped, down, blocked or"
        " starting.",
        width=12,
    ),
    Panel(
        "Links",
        "state-timeline",
        [
            (
                'sum by (from, to) (isthmus_link_state{isthmus_link_state=~"running|lagging"})',
                "{{from}}-{{to}}",
            )
        ],
        "1 while the link carries what it should.",
        width=12,
    ),
    _graph(
        "Lag",
        "Age of the oldest message that the receiver lacks, of the twenty worst links.",
        ("topk(20, isthmus_link_lag_seconds)", "{{from}}-{{to}}"),
        unit="s",
    ),
    _graph(
        "Waiting",
        "Messages in egress, and in logs before delivery.",
        ("sum by (site) (isthmus_site_egress_messages)", "{{site}} egress"),
        ("sum by (site) (isthmus_site_undelivered_messages)", "{{site}} delivery"),
    ),
    _graph(
        "Delay from end to end, p99",
        "From publish at the origin to confirmed delivery.",
        (
            _quantiles("isthmus_end_to_end_delay_seconds", "origin, site"),
            "{{origin}} to {{site}}",
        ),
        unit="s",
    ),
    _graph(
        "Published",
        "Messages packed a second.",
        (f"sum by (site) (rate(isthmus_site_packed_messages_total[{_RATE}]))", "{{site}}"),
        unit="cps",
    ),
    _graph(
        "Delivered",
        "Messages delivered a second.",
        (f"sum by (site) (rate(isthmus_site_delivered_messages_total[{_RATE}]))", "{{site}}"),
        unit="cps",
    ),
    _graph(
        "Lines",
        "Bytes acknowledged a second, compressed.",
        (f"sum by (from, to) (rate(isthmus_link_acked_bytes_total[{_RATE}]))", "{{from}}-{{to}}"),
        unit="Bps",
    ),
    _graph(
        "Room in logs",
        "Part of max_bytes that is still needed; 0 without a limit.",
        ("isthmus_log_fill_ratio", "{{site}}"),
        unit="percentunit",
    ),
    _graph(
        "Audit",
        "Findings of the last audit, and 1 for the present verdict.",
        ("isthmus_audit_findings", "findings"),
        ("isthmus_audit_last_verdict == 1", "{{isthmus_audit_last_verdict}}"),
    ),
    Panel(
        "Alerts",
        "table",
        [('ALERTS{alertname=~"Isthmus.+", alertstate="firing"}', "")],
        "Alerts that fire; docs/runbook.md has a section for each.",
    ),
]
_IS = '{from="$from", to="$to"}'
LINK = [
    Panel(
        "State",
        "state-timeline",
        [(f"isthmus_link_state{_IS} == 1", "{{isthmus_link_state}}")],
        "State by the link's progress.",
        width=12,
    ),
    Panel(
        "Receiver",
        "state-timeline",
        [(f"isthmus_link_receiver_state{_IS} == 1", "{{isthmus_link_receiver_state}}")],
        "State by the receiver's session.",
        width=12,
    ),
    _graph(
        "Lag in time",
        "Age of the oldest message that the receiver lacks, and a tenth of the outage window.",
        (f"isthmus_link_lag_seconds{_IS}", "lag"),
        ("0.1 * max(isthmus_mesh_outage_window_seconds)", "a tenth of the outage window"),
        unit="s",
    ),
    _graph(
        "Lag in messages",
        "Messages that the receiver lacks, of the link and of each lane.",
        (f"isthmus_link_lag_messages{_IS}", "link"),
        (f"isthmus_lane_lag_messages{_IS}", "{{lane}}"),
    ),
    _graph(
        "Messages",
        "Acknowledged by the receiver, and arrived there, a second.",
        (f"rate(isthmus_link_acked_messages_total{_IS}[{_RATE}])", "acknowledged"),
        (f"rate(isthmus_link_receiver_arrived_messages_total{_IS}[{_RATE}])", "arrived"),
        unit="cps",
    ),
    _graph(
        "Line",
        "Bytes sent and acknowledged a second, and the limit if there is one.",
        (f"rate(isthmus_link_sent_bytes_total{_IS}[{_RATE}])", "sent"),
        (f"rate(isthmus_link_acked_bytes_total{_IS}[{_RATE}])", "acknowledged"),
        (f"isthmus_link_max_rate_bytes_per_second{_IS}", "limit"),
        unit="Bps",
    ),
    _graph(
        "Delay of acknowledgements",
        "From the send of a batch to its acknowledgement, p99, and the round trip.",
        (_quantiles("isthmus_link_acknowledgement_delay_seconds", "from, to", _IS), "p99"),
        (f"isthmus_link_round_trip_seconds{_IS}", "round trip"),
        unit="s",
    ),
    _graph(
        "Clocks",
        "Receiver's clock minus the sender's.",
        (f"isthmus_link_clock_ahead_seconds{_IS}", "ahead"),
        unit="s",
    ),
    _graph(
        "Batches at the sender",
        "A second: sent, sent again, refused, and left out by reason.",
        (f"rate(isthmus_link_sent_batches_total{_IS}[{_RATE}])", "sent"),
        (f"rate(isthmus_link_resent_batches_total{_IS}[{_RATE}])", "sent again"),
        (f"rate(isthmus_link_refused_batches_total{_IS}[{_RATE}])", "refused"),
        (f"rate(isthmus_link_skipped_batches_total{_IS}[{_RATE}])", "{{reason}}"),
    ),
    _graph(
        "Batches at the receiver",
        "A second: appended to its log, known there already, refused.",
        (f"rate(isthmus_link_receiver_logged_batches_total{_IS}[{_RATE}])", "logged"),
        (f"rate(isthmus_link_receiver_known_batches_total{_IS}[{_RATE}])", "known"),
        (f"rate(isthmus_link_receiver_refused_batches_total{_IS}[{_RATE}])", "refused"),
    ),
    _graph(
        "Sessions",
        "Begun, without any acknowledgement, and ended by reason, in an hour.",
        (f"increase(isthmus_link_sessions_total{_IS}[1h])", "begun"),
        (f"increase(isthmus_link_fruitless_sessions_total{_IS}[1h])", "fruitless"),
        (f"increase(isthmus_link_ended_sessions_total{_IS}[1h])", "{{reason}}"),
    ),
    _graph(
        "Frames not obeyed",
        "In an hour, by reason, at either end.",
        (f"increase(isthmus_link_dropped_frames_total{_IS}[1h])", "sender: {{reason}}"),
        (f"increase(isthmus_link_receiver_dropped_frames_total{_IS}[1h])", "receiver: {{reason}}"),
        (f"increase(isthmus_link_returned_frames_total{_IS}[1h])", "came back"),
    ),
]


def _placed(panels: Iterable[Panel]) -> list[dict[str, Any]]:
    """Place panels in lines, from left to right; those of a line have one height."""
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        placed.append(panel.as_json(number, x, y))
        x, height = x + panel.width, panel.height
    return placed


def _choice(name: str, query: str) -> dict[str, Any]:
    """Return the variable of a board that a label gives its values."""
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def _board(uid: str, title: str, panels: Iterable[Panel], *choices: dict[str, Any]) -> str:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "refresh": 1}
    board = {
        "uid": uid,
        "title": title,
        "tags": ["isthmus"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, *choices]},
        "links": [
            {"type": "dashboards", "tags": ["isthmus"], "title": "Isthmus", "includeVars": True}
        ],
        "panels": _placed(panels),
    }
    return json.dumps(board, indent=1) + "\n"


def boards() -> dict[str, str]:
    """Return the content of each file."""
    choices = (
        _choice("from", "label_values(isthmus_link_state, from)"),
        _choice("to", 'label_values(isthmus_link_state{from="$from"}, to)'),
    )
    return {
        "mesh.json": _board("isthmus-mesh", "Isthmus: mesh", MESH),
        "link.json": _board("isthmus-link", "Isthmus: link", LINK, *choices),
    }


if __name__ == "__main__":
    for name, content in boards().items():
        (FOLDER / name).write_text(content)
