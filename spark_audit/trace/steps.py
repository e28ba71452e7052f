"""Result of a trace: steps of messages, and the searched places."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceStep:
    """Action of a stage. Times in ms since 1970, by the site's own clock (the origin's, for
    publishing). `at_ms` is None if nothing was done, with the reason in `text`.
    """

    at_ms: int | None
    site: str
    what: str
    """Kind: published, packed, sent, came, settled, or missing."""
    text: str
    batch: str
    entry: int | None = None
    path: tuple[str, ...] = ()
    content: str | None = None


@dataclass(slots=True)
class TracedMessage:
    """Identity within its exchange."""

    exchange: str
    identity: str
    steps: list[TraceStep] = field(default_factory=list)

    @property
    def published_ms(self) -> int | None:
        times = [step.at_ms for step in self.steps if step.what == "published" and step.at_ms]
        return min(times, default=None)


@dataclass(slots=True)
class TraceResult:
    """Traced messages, and the searched places."""

    messages: list[TracedMessage]
    files: int
    sites: list[str]
    dates: tuple[str, str] | None
    bad: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        return {
            "messages": [
                {
                    "exchange": message.exchange,
                    "identity": message.identity,
                    "published": _time(message.published_ms),
                    "steps": [
                        {
                            "time": _time(step.at_ms),
                            "site": step.site,
                            "what": step.what,
                            "said": step.text,
                            "batch": step.batch,
                            "entry": step.entry,
                            "path": list(step.path),
                            "content": step.content,
                        }
                        for step in message.steps
                    ],
                }
                for message in self.messages
            ],
            "searched": {"files": self.files, "sites": self.sites, "dates": self.dates},
            "unreadable": self.bad,
        }


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
