"""What a node says of each of its links: the figures of status and of the metrics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from federation.mesh import Link
from relay.links.link_state import ReportedState
from relay.links.metrics import ReceiverCounters, SenderCounters
from relay.links.receiver.task import LinkReceiverTask
from relay.links.sender.task import LinkSenderTask


def sender_report(
    link: Link, task: LinkSenderTask, state: ReportedState, reason: str
) -> dict[str, Any]:
    """Of one that begins here."""
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
        **_figures(machine.counters),
        # 0 would say that they agree.
        "clock_ahead_ms": machine.measured and machine.measured.ahead_ms,
    }


def resting_report(link: Link, messages: int, nbytes: int) -> dict[str, Any]:
    """Of one that begins here and is held, and has so much before it."""
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
    """Of one that ends here."""
    machine = task.machine
    return {
        "from": link.sender,
        "to": link.receiver,
        "state": machine.state.value,
        "reason": machine.reason,
        **_figures(machine.counters),
    }


def _figures(counters: SenderCounters | ReceiverCounters) -> dict[str, Any]:
    """Fit for JSON; `asdict` makes nonsense of a Counter."""
    named = {one.name: getattr(counters, one.name) for one in fields(counters)}
    return {
        name: dict(value) if isinstance(value, dict) else value for name, value in named.items()
    }
