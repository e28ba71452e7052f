"""How far a link has safely got, what that was true of, and where its next session begins.

Pure. A position says "the receiver's log has all up to here that it should have". It is worth only
what it was reached with: that log of the receiver's, its run, our filter. When
any of these has changed, the link looks again from further back for what the receiver lacks.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from federation.mesh import ForwardingRule
from relay.batches.batch import BatchHeader, BatchName, Place, Series
from relay.links.forwarding import WHOLE, FilterSeen, Forwarding, LaneShare, seen_with

_VERSION = 1
_WITH_KEPT_OFF = 2
_WITH_LANES = POSITION_VERSION = 3
"""A node that does not know `kept_off`, or lanes, would take such a position for more than it is.
"""


class Sample(NamedTuple):
    """The position once stood at `place` (None: before the log's first batch). `at` in seconds,
    of whatever clock; only differences count.
    """

    at: float
    place: Place | None


@dataclass(frozen=True, slots=True)
class LinkPosition:
    """What a link's sender keeps over restarts. The bytes of `encode` go into the node's state.

    `history` is in order of time; its first is where to look again from for a receiver with a
    new run that does not have all of `recent`. `reached` is the furthest place that was ever
    acknowledged before this session: where a session looks again from further back, what stands
    before it may be gone, never what follows.
    """

    receiver_log: bytes
    run: bytes
    seen: FilterSeen
    place: Place | None
    history: tuple[Sample, ...]
    reached: Place | None = None
    recent: bytes = b""
    """Names that the receiver's log had got when this was kept: `RecentAcks.encode`."""

    def behind(self, place: Place, now: float) -> LinkPosition:
        """As if the receiver had all up to this place: what it lacks of that is gone."""
        return replace(self, place=place, history=(Sample(now, place),), reached=None)

    def encode(self) -> bytes:
        """JSON, with ages instead of times: clocks of two processes have nothing in common."""
        last = self.history[-1].at
        return json.dumps(
            {
                "version": self._version,
                "receiver_log": self.receiver_log.hex(),
                "run": self.run.hex(),
                "rule": self.seen.rule.value,
                "reachable": sorted(self.seen.reachable),
                "sites": sorted(self.seen.sites),
                "own": self.seen.own,
                "neighbour": self.seen.neighbour,
                "kept_off": {
                    exchange: sorted(reachable)
                    for exchange, reachable in self.seen.kept_off.items()
                },
                **_lanes_out(self.seen.lanes),
                "place": _place_out(self.place),
                "history": [[last - s.at, _place_out(s.place)] for s in self.history],
                "reached": _place_out(self.reached),
                "recent": b64encode(self.recent).decode(),
            },
            separators=(",", ":"),
        ).encode()

    @property
    def _version(self) -> int:
        if self.seen.lanes != WHOLE:
            return _WITH_LANES
        return _WITH_KEPT_OFF if self.seen.kept_off else _VERSION

    @classmethod
    def decode(cls, data: bytes, now: float) -> LinkPosition:
        """The position in these bytes, its last sample taken as of `now`. Raises ValueError."""
        kept = json.loads(data)
        if kept["version"] not in (_VERSION, _WITH_KEPT_OFF, _WITH_LANES):
            raise ValueError(f"a link's position of version {kept['version']}")
        return cls(
            bytes.fromhex(kept["receiver_log"]),
            bytes.fromhex(kept["run"]),
            FilterSeen(
                ForwardingRule(kept["rule"]),
                kept["own"],
                kept["neighbour"],
                frozenset(kept["reachable"]),
                frozenset(kept["sites"]),
                {
                    exchange: frozenset(reachable)
                    for exchange, reachable in kept.get("kept_off", {}).items()
                },
                _lanes_in(kept),
            ),
            _place_in(kept["place"]),
            tuple(Sample(now - age, _place_in(place)) for age, place in kept["history"]),
            _place_in(kept["reached"]),
            b64decode(kept.get("recent", "")),
        )


class LinkMemory(Protocol):
    """Where one link's position is kept: the node's state, or a test's variable."""

    def load(self) -> LinkPosition | None:
        """What was saved last, None for a link that begins."""
        ...

    def save(self, position: LinkPosition, linked: Sequence[BatchHeader]) -> None:
        """Keep it; must not block. An older one that survives costs resends, never loss.

        `linked`: what the receiver's log has got since the last call, for the ledger.
        """
        ...

    def began(self) -> int | None:
        """What `begin` was told last; None: never, or before there was such a thing."""
        ...

    def begin(self, first: int) -> None:
        """Keep it: whoever reads from the log's start needs all from this offset on. What had
        gone before that was never the link's.
        """
        ...


class Beginning(NamedTuple):
    """How a session begins: the position to go on from, and why there. `goes_on`: it is the one
    that was kept.
    """

    position: LinkPosition
    why: str
    goes_on: bool = False


def begin(
    kept: LinkPosition | None,
    receiver_log: bytes,
    run: bytes,
    forwarding: Forwarding,
    now: float,
    has_recent: Callable[[], bool] = lambda: False,
) -> Beginning:
    """Where the session with this receiver begins. The place given is where reading starts;
    what the receiver has is skipped from there on. `has_recent`: whether the receiver's log still
    has all that it had got lately.
    """
    why = _from_the_start(kept, receiver_log, forwarding)
    reached = _later(kept.reached, kept.place) if kept else None
    if kept is None or why:
        seen = kept.seen.after(forwarding) if kept else seen_with(forwarding)
        fresh = LinkPosition(receiver_log, run, seen, None, (Sample(now, None),), reached)
        return Beginning(fresh, why)
    kept = replace(kept, seen=kept.seen.after(forwarding), reached=reached)
    if kept.run == run:
        return Beginning(kept, "the receiver's run is the same", goes_on=True)
    if has_recent():
        why = "the receiver has a new run, and what it had got lately"
        return Beginning(replace(kept, run=run), why, goes_on=True)
    # Its broker may have lost the end of its log: unsynced, and acknowledged shortly before.
    back = kept.history[0].place
    position = replace(kept, run=run, place=back, history=(Sample(now, back),))
    return Beginning(position, "the receiver has a new run")


def sampled(
    history: tuple[Sample, ...], now: float, place: Place | None, keep_s: float
) -> tuple[Sample, ...]:
    """The history with one more sample, and of those older than `keep_s` only the last."""
    kept = (*history, Sample(now, place))
    first = 0
    while first + 1 < len(kept) and kept[first + 1].at <= now - keep_s:
        first += 1
    return kept[first:]


def _from_the_start(kept: LinkPosition | None, receiver_log: bytes, forwarding: Forwarding) -> str:
    if kept is None:
        return "the link is new"
    if kept.receiver_log != receiver_log:
        return "the receiver's log is another"
    if kept.seen.stranded_by(forwarding):
        return "the mesh has changed what this link carries"
    return ""


def _later(one: Place | None, other: Place | None) -> Place | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda place: place.offset)


def _lanes_out(share: LaneShare) -> dict[str, Any]:
    if share == WHOLE:
        return {}
    return {"lane": share.only, "other_lanes": sorted(share.others)}


def _lanes_in(kept: dict[str, Any]) -> LaneShare:
    return LaneShare(kept.get("lane"), frozenset(kept.get("other_lanes", ())))


def _place_out(place: Place | None) -> list[Any] | None:
    if place is None:
        return None
    offset, (series, sequence) = place
    origin, incarnation, exchange, lane, destinations = series
    return [offset, origin, incarnation.hex(), exchange, lane, list(destinations), sequence]


def _place_in(kept: list[Any] | None) -> Place | None:
    if kept is None:
        return None
    offset, origin, incarnation, exchange, lane, destinations, sequence = kept
    series = Series(origin, bytes.fromhex(incarnation), exchange, lane, tuple(destinations))
    return Place(offset, BatchName(series, sequence))
