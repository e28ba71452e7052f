"""Budget of a site's sending rate: which lane of which link may send next, how much, and when.
Pure: no clock, no socket.

::

    site (its `max_rate`) --+-- link (its `max_rate`) --+-- urgent   by its weight a part of the
                            |                           +-- normal   rate is each lane's own, the
                            +-- link                    +-- bulk     rest is borrowed

A *meter* counts what a rate allows, for the site and for each link, and may go into debt by one
piece. A link's lane may send if each meter above has something left, or is in debt while the lane
has not used its own part: a lane that was quiet does not wait for what another has borrowed, and no
lane starves. Of several candidates the one with the least sent for its weight goes; of equals, the
one whose lane stands first (start-time fair queueing).

Turns are pieces of about 20 ms of the rate, not batches: at 8 kB/s a batch of 256 KiB would hold up
the others for half a minute, and arrive in one burst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from federation.lanes import NORMAL, Lane
from federation.slots import SlotPair

PIECE_S = 0.02
LEAST_PIECE = 512
"""Smallest piece. Smaller pieces let others in sooner, and cost a write to the socket each."""
MOST_PIECE = 64 * 1024
IDLE_S = 0.02
"""Seconds of its rate that a meter saves up while nobody waits: about a piece."""
BUSY_S = 0.25
"""Seconds of its rate that a meter saves up while somebody waits, for times when the process stood
still. More holds the rate on a busier machine; less keeps bursts shorter."""
OWN_S = 0.1
"""Seconds of its own part that a lane saves up."""
LEAST_WAIT_S = 0.001
WINDOW_S = 4.0
"""Seconds of a rate handed over for sending and acknowledgement: any line's round trip."""
LEAST_WINDOW = 64 * 1024


class LinkLane(NamedTuple):
    """Lane of a link; `link` is the link's name. Between slots a strand of the lane."""

    link: str
    lane: str
    slots: SlotPair | None = None


class Turn(NamedTuple):
    """Permission to send up to `most` bytes now."""

    link_lane: LinkLane
    most: int


class Rates(NamedTuple):
    """Rates in bytes a second; None: no limit. A link missing from `links` has no own rate."""

    site: int | None = None
    links: Mapping[str, int | None] = {}
    lanes: Sequence[Lane] = ()


@dataclass(slots=True)
class _Meter:
    """Meter of one rate. `parts`: each lane's own part of the rate."""

    rate: int | None = None
    parts: dict[str, float] = field(default_factory=dict)
    left: float = 0.0
    own: dict[str, float] = field(default_factory=dict)
    waiting: int = 0
    """Link lanes below this meter with data to send."""
    looked_at: float = 0.0

    def change(self, rate: int | None, parts: dict[str, float], now: float) -> None:
        self.look(now)
        if self.rate is None:
            self.left = 0.0
            self.looked_at = now
        self.rate, self.parts = rate, parts
        self.own = {lane: self.own.get(lane, 0.0) for lane in parts}

    def look(self, now: float) -> None:
        """Take in the time that has passed."""
        passed, self.looked_at = max(0.0, now - self.looked_at), max(now, self.looked_at)
        rate = self.rate
        if rate is None or not passed:
            return
        most = rate * (BUSY_S if self.waiting else IDLE_S)
        self.left = min(most, self.left + rate * passed)
        for lane, part in self.parts.items():
            own = self.own[lane] + rate * part * passed
            self.own[lane] = min(rate * part * OWN_S, own)

    def may(self, lane: str) -> bool:
        return self.rate is None or self.left >= 0 or self.own.get(lane, -1.0) >= 0

    def due_s(self, lane: str) -> float:
        """Return the seconds until the lane may send."""
        rate = self.rate
        if rate is None or self.may(lane):
            return 0.0
        waits = [-self.left / rate]
        part = self.parts.get(lane)
        if part:
            waits.append(-self.own[lane] / (rate * part))
        return min(waits)

    def spend(self, lane: str, nbytes: int) -> None:
        if self.rate is None:
            return
        self.left -= nbytes
        if lane in self.own:
            # Borrowed bytes are no debt of the lane's own: the meter's is enough.
            self.own[lane] = max(self.own[lane] - nbytes, -float(nbytes))


class Budget:
    """Budget of one site."""

    def __init__(self) -> None:
        self._site = _Meter()
        self._links: dict[str, _Meter] = {}
        self._lanes: dict[str, tuple[int, int]] = {NORMAL: (0, 1)}
        """Rank and weight of each lane, by name."""
        self._waiting: dict[LinkLane, float] = {}
        """Lanes that want to send, with the bytes each has sent here, divided by its weight."""
        self._had: dict[LinkLane, float] = {}
        """Bytes sent, divided by the weight, of lanes that do not want to send at present."""
        self._had_least = 0.0
        self._behind: set[LinkLane] = set()
        self._ready: dict[str, list[tuple[float, int, LinkLane]]] = {}
        """Heap, by lane, of the link lanes that their link lets through: bytes sent by weight,
        rank. An entry that disagrees with `_waiting` is skipped at the top; with hundreds of links,
        nobody looks at all of them."""
        self._parked: list[tuple[float, LinkLane]] = []
        """Heap of the link lanes whose link is in debt, by the soonest time they may send."""

    def change(self, rates: Rates, now: float) -> None:
        """Replace the rates; debts stay."""
        lanes = rates.lanes or (Lane(NORMAL, 0, 1),)
        self._lanes = {lane.name: (rank, lane.weight) for rank, lane in enumerate(lanes)}
        whole = sum(lane.weight for lane in lanes)
        parts = {lane.name: lane.weight / whole for lane in lanes}
        self._site.change(rates.site, parts, now)
        for link, rate in rates.links.items():
            self._meter(link, now).change(rate, parts, now)
        for link in self._links.keys() - rates.links.keys():
            self._links[link].change(None, parts, now)
        self._ready.clear()
        self._parked.clear()
        for link_lane in self._waiting:
            self._is_ready(link_lane)

    def is_limited(self, link: str) -> bool:
        """Return True if lanes of the link have to ask at all."""
        meter = self._links.get(link)
        return self._site.rate is not None or (meter is not None and meter.rate is not None)

    def rate(self, link: str) -> int | None:
        """Return the most that the link may send at present, in bytes a second, or None."""
        meter = self._links.get(link)
        rates = [self._site.rate, meter.rate if meter is not None else None]
        return min((rate for rate in rates if rate is not None), default=None)

    def window(self, link: str) -> int | None:
        """Return the bytes worth having under way over one lane, or None without a rate."""
        rate = self.rate(link)
        return None if rate is None else max(LEAST_WINDOW, round(rate * WINDOW_S))

    def is_behind(self, link_lane: LinkLane, behind: bool) -> None:
        """Set if the lane has a backlog. Unless it is the first lane, it then has the weight of the
        last lane until it has caught up.
        """
        if behind and self._lanes.get(link_lane.lane, (0, 1))[0] > 0:
            self._behind.add(link_lane)
        else:
            self._behind.discard(link_lane)

    def wants(self, link_lane: LinkLane, now: float) -> None:
        """Note that the lane has data to send from now on."""
        if link_lane in self._waiting:
            return
        for meter in self._above(link_lane, now):
            meter.look(now)
            meter.waiting += 1
        # A lane that comes back has saved up nothing meanwhile.
        self._waiting[link_lane] = max(self._had.pop(link_lane, 0.0), self._had_least)
        self._is_ready(link_lane)

    def wants_no_more(self, link_lane: LinkLane, now: float) -> None:
        """Note that the lane has nothing to send, or cannot send, from now on."""
        had = self._waiting.pop(link_lane, None)
        if had is None:
            return
        for meter in self._above(link_lane, now):
            meter.look(now)
            meter.waiting -= 1
        self._had[link_lane] = had

    def forget(self, link_lane: LinkLane, now: float) -> None:
        """Forget a lane that is no more."""
        self.wants_no_more(link_lane, now)
        self._had.pop(link_lane, None)
        self._behind.discard(link_lane)

    def next(self, now: float) -> Turn | None:
        """Return the next turn, or None if nobody may send at present."""
        while self._parked and self._parked[0][0] <= now:
            _, link_lane = heappop(self._parked)
            if link_lane in self._waiting:
                self._is_ready(link_lane)
        self._site.look(now)
        while (best := self._first_ready()) is not None:
            link_lane = best[2]
            link = self._meter(link_lane.link, now)
            link.look(now)
            wait_s = link.due_s(link_lane.lane)
            if wait_s <= 0:
                break
            heappop(self._ready[link_lane.lane])
            heappush(self._parked, (now + wait_s, link_lane))
        if best is None:
            return None
        self._had_least = max(self._had_least, best[0])
        rate = self.rate(link_lane.link)
        most = MOST_PIECE if rate is None else round(rate * PIECE_S)
        return Turn(link_lane, min(MOST_PIECE, max(LEAST_PIECE, most)))

    def spent(self, link_lane: LinkLane, nbytes: int, now: float) -> None:
        """Deduct bytes that the lane has sent."""
        for meter in self._looked_at(link_lane, now):
            meter.spend(link_lane.lane, nbytes)
        had = nbytes / self._weight(link_lane)
        if link_lane in self._waiting:
            self._waiting[link_lane] += had
            self._is_ready(link_lane)
        else:  # the lane has sent all that it had
            self._had[link_lane] = self._had.get(link_lane, self._had_least) + had

    def due(self, now: float) -> float | None:
        """Return when a turn may be due, after `next` returned None; None: no lane wants to
        send.
        """
        while self._parked and self._parked[0][1] not in self._waiting:
            heappop(self._parked)
        waits = [at - now for at, _ in self._parked[:1]]
        waits += [self._site.due_s(lane) for lane in self._ready if self._top(lane) is not None]
        return now + max(LEAST_WAIT_S, min(waits)) if waits else None

    def _is_ready(self, link_lane: LinkLane) -> None:
        rank = self._lanes.get(link_lane.lane, (0, 1))[0]
        heappush(
            self._ready.setdefault(link_lane.lane, []), (self._waiting[link_lane], rank, link_lane)
        )

    def _first_ready(self) -> tuple[float, int, LinkLane] | None:
        tops = (self._top(lane) for lane in self._ready if self._site.may(lane))
        return min((top for top in tops if top is not None), default=None)

    def _top(self, lane: str) -> tuple[float, int, LinkLane] | None:
        heap = self._ready[lane]
        while heap and self._waiting.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None

    def _weight(self, link_lane: LinkLane) -> int:
        if link_lane in self._behind:
            return min(weight for _, weight in self._lanes.values())
        return self._lanes.get(link_lane.lane, (0, 1))[1]

    def _above(self, link_lane: LinkLane, now: float) -> tuple[_Meter, _Meter]:
        return self._site, self._meter(link_lane.link, now)

    def _looked_at(self, link_lane: LinkLane, now: float) -> tuple[_Meter, _Meter]:
        meters = self._above(link_lane, now)
        for meter in meters:
            meter.look(now)
        return meters

    def _meter(self, link: str, now: float) -> _Meter:
        meter = self._links.get(link)
        if meter is None:
            meter = self._links[link] = _Meter(looked_at=now)
        return meter
