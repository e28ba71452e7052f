"""Canaries: batches without messages which prove that a quiet link would carry batches.

A link whose ends hear each other may still forward nothing: a packer, a log or a reader that stands
still looks idle. So when nothing was acknowledged over some link for a while, the site's packer
writes one canary, for the logs of all neighbours. A canary goes the way of every batch, from this
site's packer into the other log and back as an acknowledgement; a canary that does not come back in
time makes the link `stalled`.

Pure, but for asking the packer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from relay.batches.batch import BatchName

QUIET_S = 25.0
"""Time without acknowledgement after which a link is quiet. Together with the half minute that a
link has for an answer, less than the minute for which a link that forwards nothing may look
healthy."""


class Canary(Protocol):
    """Canary that the packer was asked for."""

    name: BatchName | None
    """Name of the batch once this site's log has it; None before."""
    given_up: bool
    """True if the packer ended before the log had the canary."""


Ask = Callable[[], Canary | None]
"""Function that has a canary written; None while the packer takes nothing."""


class LinkActivity(NamedTuple):
    """Observation of a link out of this site."""

    name: str
    acked: int | None
    """Batches acknowledged over the link so far, or None without a session."""
    receiver_has: Callable[[BatchName], bool]
    """Function that returns True if the receiver's log is known to have the batch."""


@dataclass(slots=True)
class _Activity:
    acked: int
    since: float


class Canaries:
    """Canaries over all links out of a site."""

    def __init__(self) -> None:
        self._seen: dict[str, _Activity] = {}
        self._latest: Canary | None = None
        self._asked_at = 0.0

    def look(self, links: Iterable[LinkActivity], now: float) -> bool:
        """Take in all links; call once a second. Returns True if a canary is due."""
        latest = self._latest
        if latest is not None and latest.given_up:
            latest = self._latest = None
        sought = None if latest is None else latest.name
        seen: dict[str, _Activity] = {}
        for name, acked, receiver_has in links:
            former = self._seen.get(name)
            if acked is None:
                # The link is down, which is reported already.
                seen[name] = _Activity(former.acked if former else 0, now)
            elif former is None or former.acked != acked:
                seen[name] = _Activity(acked, now)
            elif self._awaited_since(former) and sought is not None and receiver_has(sought):
                # Batches that the log had when the session began are never acknowledged.
                seen[name] = _Activity(acked, now)
            else:
                seen[name] = former
        self._seen = seen
        return any(
            now - one.since >= QUIET_S and not self._awaited_since(one) for one in seen.values()
        )

    def asked(self, canary: Canary, now: float) -> None:
        """Note that the packer was asked for a canary."""
        self._latest, self._asked_at = canary, now

    def unanswered_s(self, link: str, now: float) -> float:
        """Return the seconds that a canary is overdue over the link; 0 if none is awaited."""
        seen = self._seen.get(link)
        return now - self._asked_at if seen is not None and self._awaited_since(seen) else 0.0

    def _awaited_since(self, seen: _Activity) -> bool:
        return self._latest is not None and self._asked_at >= seen.since
