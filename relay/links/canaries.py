"""Batches without messages that prove, where a link is quiet, that it would carry some.

A link whose ends hear each other may still forward nothing: a packer, a log or a reader that
stands still looks like one that has nothing to do. So when nothing has been acknowledged over some
link for a while, the site's packer writes one canary, for the logs of all neighbours. It goes the
way of every batch, from this site's packer into the other log, and back as an acknowledgement;
what does not come back in time makes the link `stalled`.

Pure, but for asking the packer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from relay.batches.batch import BatchName

QUIET_S = 25.0
"""Together with the half minute that a link has for an answer, less than the minute for which one
that forwards nothing may look as if it did."""


class Canary(Protocol):
    """One that the packer was asked for."""

    name: BatchName | None
    """Once this site's log has it."""
    given_up: bool
    """The packer ended before the log had it."""


Ask = Callable[[], Canary | None]
"""Have one written; None: the packer takes nothing now."""


class LinkSeen(NamedTuple):
    """One link out of this site."""

    name: str
    acked: int | None
    """Batches that were acknowledged over it so far; None: it has no session."""
    receiver_has: Callable[[BatchName], bool]
    """Whether the present session has told so."""


@dataclass(slots=True)
class _Seen:
    acked: int
    since: float


class Canaries:
    """Of all links out of one site."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._latest: Canary | None = None
        self._asked_at = 0.0

    def look(self, links: Iterable[LinkSeen], now: float) -> bool:
        """Whether a canary is due. To be told once a second of every link."""
        latest = self._latest
        if latest is not None and latest.given_up:
            latest = self._latest = None
        sought = None if latest is None else latest.name
        seen: dict[str, _Seen] = {}
        for name, acked, receiver_has in links:
            former = self._seen.get(name)
            if acked is None:
                # Not known to be quiet, but down: that is said already.
                seen[name] = _Seen(former.acked if former else 0, now)
            elif former is None or former.acked != acked:
                seen[name] = _Seen(acked, now)
            elif self._awaited_since(former) and sought is not None and receiver_has(sought):
                # Nobody acknowledges what the log was found to have when a session began.
                seen[name] = _Seen(acked, now)
            else:
                seen[name] = former
        self._seen = seen
        return any(
            now - one.since >= QUIET_S and not self._awaited_since(one) for one in seen.values()
        )

    def asked(self, canary: Canary, now: float) -> None:
        """The packer has one now."""
        self._latest, self._asked_at = canary, now

    def unanswered_s(self, link: str, now: float) -> float:
        """How long a canary has not come back over this link; 0 if none is awaited."""
        seen = self._seen.get(link)
        return now - self._asked_at if seen is not None and self._awaited_since(seen) else 0.0

    def _awaited_since(self, seen: _Seen) -> bool:
        return self._latest is not None and self._asked_at >= seen.since
