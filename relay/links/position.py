"""Position of a link: how far it has safely got, under which conditions, and where its next session
begins.

Pure. A position means "the receiver's log has all up to here that it should have". A position is
valid only for the receiver's log, the run of that log and the filter of ours with which it was
reached. When any of these has changed, the link looks again from further back for what the receiver
lacks.
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
"""Version for positions with `kept_off` or lanes, which older nodes would misread."""


class Sample(NamedTuple):
    """Place of the position at an earlier time (None: before the log's first batch). `at` is in
    seconds of any clock; only differences count.
    """

    at: float
    place: Place | None


@dataclass(frozen=True, slots=True)
class LinkPosition:
    """State that a link's sender keeps over restarts. The bytes of `encode` go into the node's
    state.

    `history` is in order of time; its first sample is where to look again from for a receiver with
    a new run that does not have all of `recent`. `reached` is the furthest place ever acknowledged
    before this session: where a session looks again from further back, batches before `reached` may
    be gone, batches after it never.
    """

    receiver_log: bytes
    run: bytes
    seen: FilterSeen
    place: Place | None
    history: tuple[Sample, ...]
    reached: Place | None = None
    recent: bytes = b""
    """Names in the receiver's log at the time of saving: `RecentAcks.encode`."""

    def behind(self, place: Place, now: float) -> LinkPosition:
        """Return the position as if the receiver had all up to the place; the lacking are gone."""
        return replace(self, place=place, history=(Sample(now, place),), reached=None)

    def encode(self) -> bytes:
        """Return JSON, with ages for times: the clocks of two processes have nothing in common."""
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
        """Return the position in the bytes, its last sample dated `now`. Raises ValueError."""
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
    """Store of one link's position: the node's state, or a test's variable."""

    def load(self) -> LinkPosition | None:
        """Return the position saved last, or None for a link that begins."""
        ...

    def save(self, position: LinkPosition, linked: Sequence[BatchHeader]) -> None:
        """Save a position without blocking. An older position costs resends, never loss.

        `linked`: batches that the receiver's log has got since the last call, for the ledger.
        """
        ...

    def began(self) -> int | None:
        """Return the argument of the last `begin`, or None if there was none."""
        ...

    def begin(self, first: int) -> None:
        """Save the first offset that the link needs: batches before it were never the link's."""
        ...


class Beginning(NamedTuple):
    """Position from which a session goes on, and why. `goes_on`: it is the saved position."""

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
    """Return where the session begins: the place where reading starts, from which on the receiver's
    batches are skipped. `has_recent` returns True if the receiver's log still has all its recent
    batches.
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
    # The receiver's broker may have lost the log's unsynced end, acknowledged shortly before.
    back = kept.history[0].place
    position = replace(kept, run=run, place=back, history=(Sample(now, back),))
    return Beginning(position, "the receiver has a new run")


def sampled(
    history: tuple[Sample, ...], now: float, place: Place | None, keep_s: float
) -> tuple[Sample, ...]:
    """Return the history with one more sample, and only the last of those older than `keep_s`."""
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
    lanes = [] if share.only is None else sorted(share.only)
    # A single one as former versions have it.
    only = None if not lanes else lanes[0] if len(lanes) == 1 else lanes
    return {"lane": only, "other_lanes": sorted(share.others)}


def _lanes_in(kept: dict[str, Any]) -> LaneShare:
    lane = kept.get("lane")
    only = [lane] if isinstance(lane, int) else lane  # of a node that knew no partitions
    return LaneShare(
        None if only is None else frozenset(only), frozenset(kept.get("other_lanes", ()))
    )


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
