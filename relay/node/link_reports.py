"""State of a site's links: watched once a second, and reported for status and metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from federation.lanes import NORMAL
from federation.mesh import Link, Mesh
from relay.delay_histogram import DelayHistogram
from relay.links.canaries import Ask, Canaries, LinkActivity
from relay.links.link_state import LinkFacts, Movement, ReportedState, reported_state
from relay.links.metrics import LinkState, ReceiverCounters, SenderCounters
from relay.links.receiver.task import LinkReceiverTask
from relay.links.sender.task import LinkSenderTask
from relay.links.sender.timing import clock_difference_ms


def sender_report(
    link: Link, task: LinkSenderTask, state: ReportedState, reason: str
) -> dict[str, Any]:
    """Figures of a link that begins here."""
    machine, lag = task.machine, task.lag
    formats = machine.receiver_formats
    return {
        "from": link.sender,
        "to": link.receiver,
        "state": state.value,
        "reason": reason,
        "lag_messages": lag.messages,
        "lag_bytes": lag.bytes,
        "lag_seconds": round(lag.seconds, 3),
        "receiver_formats": None if formats is None else formats.ranges,
        "window_used_bytes": machine.outstanding_bytes,
        "window_bytes": machine.window_bytes,
        **_figures(machine.counters),
        # None until measured: 0 would mean equal clocks.
        "clock_ahead_ms": machine.measured and machine.measured.ahead_ms,
    }


def resting_report(link: Link, messages: int, nbytes: int) -> dict[str, Any]:
    """Figures of a held link that begins here, with its backlog."""
    return {
        "from": link.sender,
        "to": link.receiver,
        "state": ReportedState.PAUSED.value,
        "reason": f"`isthmus resume FILE --link {link.name}` lets it go on",
        "lag_messages": messages,
        "lag_bytes": nbytes,
        "lag_seconds": None,
    }


def receiver_report(link: Link, task: LinkReceiverTask) -> dict[str, Any]:
    """Figures of a link that ends here."""
    machine = task.machine
    return {
        "from": link.sender,
        "to": link.receiver,
        "state": machine.state.value,
        "reason": machine.reason,
        **_figures(machine.counters),
    }


def _figures(counters: SenderCounters | ReceiverCounters) -> dict[str, Any]:
    """Counters as JSON values; `asdict` would spoil a Counter."""
    named = {one.name: getattr(counters, one.name) for one in fields(counters)}
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in named.items()
        if not isinstance(value, DelayHistogram)
    }


_FROM_BAD_TO_GOOD = (
    *(state.value for state in ReportedState),
    *(state.value for state in LinkState if state.value not in set(ReportedState)),
)
_WORST_OF = ("lag_messages", "lag_bytes", "lag_seconds")
"""Figures of which a link has its worst strand's: each counts all entries behind its place in the
log, of whatever lane, so these do not add up.
"""
_OF_ANY = (
    "from",
    "to",
    "state",
    "reason",
    "receiver_formats",
    "round_trip_s",
    "clock_ahead_ms",
    "max_rate",
    "connected_to",
)


def reports_by_link(reports: Iterable[tuple[Link, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Combine the reports of a link's strands into one report a link. A link without strands keeps
    its report.

    Counters are sums over the strands; `lanes` has each lane's own figures.
    """
    by_link: dict[str, list[tuple[Link, dict[str, Any]]]] = {}
    for link, report in reports:
        by_link.setdefault(link.line_name, []).append((link, report))
    return [_by_lane(strands) for strands in by_link.values()]


def _by_lane(strands: list[tuple[Link, dict[str, Any]]]) -> dict[str, Any]:
    by_lane: dict[str, list[dict[str, Any]]] = {}
    for link, report in strands:
        by_lane.setdefault(link.lane or NORMAL, []).append(report)
    lanes = {lane: one_link(reports) for lane, reports in by_lane.items()}
    if not any(link.lane for link, _ in strands):
        return lanes[NORMAL]
    whole = one_link(list(lanes.values()), lanes.get(NORMAL))
    # A reason that all lanes share, such as an unreachable broker, is the link's.
    if whole["reason"] and any(report["reason"] != whole["reason"] for report in lanes.values()):
        worst = min(lanes, key=lambda lane: _badness(lanes[lane]["state"]))
        whole["reason"] = f"lane {worst}: {whole['reason']}"
    whole["lanes"] = {
        lane: {name: value for name, value in report.items() if name not in ("from", "to")}
        for lane, report in lanes.items()
    }
    return whole


def one_link(
    reports: Sequence[dict[str, Any]], plain: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Combine reports of one link: sums of counts, the worst state with its reason. `plain`, by
    default that of the worst state, has the figures that are of the link as a whole.
    """
    if len(reports) == 1:
        return reports[0]
    worst = min(reports, key=lambda report: _badness(report["state"]))
    whole: dict[str, Any] = {}
    for name, value in (plain or worst).items():
        values = [report[name] for report in reports if report.get(name) is not None]
        if name in _OF_ANY:
            whole[name] = values[0] if value is None and values else value
        elif name in _WORST_OF:
            whole[name] = max(values, default=value)
        elif name == "lanes":
            whole[name] = {
                lane: one_link([one[lane] for one in values if lane in one]) for lane in value
            }
        elif isinstance(value, dict):
            whole[name] = dict(sum((Counter(one) for one in values), Counter[str]()))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            whole[name] = sum(values)
        else:
            whole[name] = value
    whole["state"], whole["reason"] = worst["state"], worst["reason"]
    return whole


def _badness(state: str) -> int:
    return _FROM_BAD_TO_GOOD.index(state)


class LinkWatch:
    """Watches all links of one site, once a second: their progress, the clocks of neighbours, and
    quiet links for which a canary is due.
    """

    def __init__(self, ask: Ask) -> None:
        """`ask` has the packer send a canary."""
        self.clock_differences_ms: dict[str, int] = {}
        """Neighbour's clock minus ours, by cluster ID, once measured; one dict, updated in
        place.
        """
        self._movements: defaultdict[str, Movement] = defaultdict(Movement)
        """Progress of each link out of here, by the link's name."""
        self._canaries = Canaries()
        self._ask = ask

    def look(
        self,
        mesh: Mesh,
        senders: Iterable[tuple[Link, LinkSenderTask]],
        receivers: Iterable[tuple[Link, LinkReceiverTask]],
        now: float,
    ) -> None:
        """Look at all links; to be called once a second."""
        out, seen = {}, []
        back = {
            link.sender: task.machine.measured
            for link, task in receivers
            if task.machine.measured is not None
        }
        for link, task in senders:
            if task.machine.measured is not None:
                out[link.receiver] = task.machine.measured
            in_session = task.machine.heard_at is not None and not task.gap
            acked = task.machine.counters.acked if in_session else None
            seen.append(LinkActivity(link.name, acked, task.machine.receiver_has))
            place = task.machine.place
            self._movements[link.name].note(place and place.name, task.lag.messages, now)
        if self._canaries.look(seen, now):
            canary = self._ask()
            if canary is not None:
                self._canaries.asked(canary, now)
        for neighbour in {*out, *back}:
            difference = clock_difference_ms(out.get(neighbour), back.get(neighbour))
            if difference is not None and neighbour in mesh.sites:
                self.clock_differences_ms[mesh.sites[neighbour].cluster_id] = difference

    def state_of(self, link: Link, task: LinkSenderTask, now: float) -> tuple[ReportedState, str]:
        """State of a link that nobody holds back, and why the state is not `running`."""
        machine, lag = task.machine, task.lag
        facts = LinkFacts(
            gap=task.gap,
            reason=machine.reason,
            in_session=machine.heard_at is not None,
            heard_s=None if machine.heard_at is None else now - machine.heard_at,
            is_blocked=task.blocked,
            lag_messages=lag.messages,
            lag_s=lag.seconds,
            # A limited rate may hold one batch for long; the link is well.
            unmoved_s=0.0 if task.held_back else self._movements[link.name].unmoved_s(now),
            unanswered_s=0.0 if task.held_back else self._canaries.unanswered_s(link.name, now),
        )
        return reported_state(facts, link.receiver)
