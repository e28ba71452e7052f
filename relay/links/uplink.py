"""Gates that hold back what a site sends over its links until the budget grants a turn.

Each lane of a link has a gate. A sender puts bytes before its gate and is granted some of them at
each turn, at once where no rate holds. Links are independent of each other unless the site has a
rate too; only then does a hub look at all its links. Timers run only while somebody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from federation.lanes import NORMAL
from federation.mesh import Link, Mesh
from relay.links.budget import Budget, LinkLane, Rates


class Timer(Protocol):
    """Timer as `loop.call_later` returns it."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


def _by_the_loop(delay_s: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(delay_s, call)


def rates_at(mesh: Mesh, site: str, minute: int) -> Rates:
    """Return the rates for what `site` sends, at the given minute of its day."""
    own = mesh.sites[site].max_rate
    return Rates(
        own.at(minute) if own is not None else None,
        {
            link.line_name: link.max_rate.at(minute)
            for link in mesh.links_from(site)
            if link.max_rate is not None
        },
        mesh.lanes,
    )


def minute_of_day(wall_ms: int) -> int:
    """Return the minute of the day by this machine's wall clock, 0 to 1439."""
    there = time.localtime(wall_ms / 1000)
    return there.tm_hour * 60 + there.tm_min


class _Pump:
    """Granter of turns by one budget, for links that depend on each other."""

    def __init__(self, now: Callable[[], float], call_later: CallLater) -> None:
        self.budget = Budget()
        self.gates: dict[LinkLane, Gate] = {}
        self._now = now
        self._call_later = call_later
        self._timer: Timer | None = None
        self._granting = False

    def look(self, gate: Gate) -> None:
        """Take in a change of the bytes before the gate."""
        if gate.holds_back:
            self.budget.wants(gate.link_lane, self._now())
            self.grant()
        else:
            self.budget.wants_no_more(gate.link_lane, self._now())

    def take_out(self, link_lane: LinkLane) -> Gate | None:
        """Remove and return the lane's gate, to be served by another pump or by none."""
        self.budget.forget(link_lane, self._now())
        return self.gates.pop(link_lane, None)

    def grant(self) -> None:
        """Grant all that may go now; the rest when it is due."""
        if self._granting:
            return  # a granted sender wants more, which comes in its turn
        self._granting = True
        try:
            while (turn := self.budget.next(self._now())) is not None:
                gate = self.gates[turn.link_lane]
                limited = self.budget.is_limited(turn.link_lane.link)
                taken = gate.take(turn.most if limited else gate.waiting)
                self.budget.spent(turn.link_lane, taken, self._now())
        finally:
            self._granting = False
        due = self.budget.due(self._now())
        self.set_timer(None if due is None else due - self._now())

    def set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._call_later(max(0.0, delay_s), self._due)

    def _due(self) -> None:
        self._timer = None
        self.grant()


class Uplink:
    """Gates of all lanes of a site's links. `now` is the clock of its nodes."""

    def __init__(self, now: Callable[[], float], call_later: CallLater = _by_the_loop) -> None:
        self._now = now
        self._call_later = call_later
        self.share = 1.0
        """Part of the rates that is for this process, where others send for the site too. Counts
        from the next `change` on.
        """
        self._rates = Rates()
        self._pumps: dict[str, _Pump] = {}
        """Pumps by link; a single pump, under the empty name, while the links share a rate."""

    def change(self, rates: Rates) -> None:
        """Replace the site's rates. Call as often as they, or `share`, may change."""
        rates = _part_of(rates, self.share)
        if rates == self._rates:
            return
        was_shared, self._rates = self._is_shared, rates
        if was_shared != self._is_shared:
            former, self._pumps = self._pumps, {}
            for pump in former.values():
                pump.set_timer(None)
                for link_lane in list(pump.gates):
                    gate = pump.take_out(link_lane)
                    assert gate is not None
                    self.pump(link_lane.link).gates[link_lane] = gate
            for gate in self._gates():
                self.pump(gate.link_lane.link).look(gate)
        for name, pump in self._pumps.items():
            pump.budget.change(self._rates_of(name), self._now())
            pump.grant()

    def rate(self, link: Link) -> int | None:
        """Return the most that the link may send from here at present, in bytes a second, or
        None.
        """
        return self.pump(link.line_name).budget.rate(link.line_name)

    def gate(self, link: Link) -> Gate:
        """Return the gate of the link's lane."""
        link_lane = _lane_of(link)
        gates = self.pump(link_lane.link).gates
        if link_lane not in gates:
            gates[link_lane] = Gate(self, link_lane)
        return gates[link_lane]

    def forget(self, link: Link) -> None:
        """Close the gate of a lane that is no more."""
        pump = self.pump(link.line_name)
        gate = pump.take_out(_lane_of(link))
        if gate is not None:
            gate.close()
            pump.grant()

    def pump(self, link_name: str) -> _Pump:
        """Return the pump that grants the link's turns."""
        key = "" if self._is_shared else link_name
        pump = self._pumps.get(key)
        if pump is None:
            pump = self._pumps[key] = _Pump(self._now, self._call_later)
            pump.budget.change(self._rates_of(key), self._now())
        return pump

    @property
    def _is_shared(self) -> bool:
        return self._rates.site is not None

    def _rates_of(self, key: str) -> Rates:
        if self._is_shared:
            return self._rates
        return self._rates._replace(links={key: self._rates.links.get(key)})

    def _gates(self) -> list[Gate]:
        return [gate for pump in self._pumps.values() for gate in pump.gates.values()]


def _part_of(rates: Rates, share: float) -> Rates:
    def part(rate: int | None) -> int | None:
        return rate and max(1, int(rate * share))

    links = {name: part(rate) for name, rate in rates.links.items()}
    return Rates(part(rates.site), links, rates.lanes) if share < 1 else rates


def _lane_of(link: Link) -> LinkLane:
    return LinkLane(link.line_name, link.lane or NORMAL, link.slots)


class Gate:
    """Gate before one lane of a link, for all its connections, of which there is one at a time."""

    def __init__(self, uplink: Uplink, link_lane: LinkLane) -> None:
        self.waiting = 0
        """Bytes that wait before the gate."""
        self.link_lane = link_lane
        self._uplink = uplink
        self._grant: Callable[[int], None] | None = None
        self._on_hold = False

    @property
    def holds_back(self) -> bool:
        """True if bytes wait for the rate, not for the line."""
        return self.waiting > 0 and not self._on_hold

    @property
    def is_limited(self) -> bool:
        """True if a rate holds at present. A lane never limited needs no gate."""
        return self._budget.is_limited(self.link_lane.link)

    @property
    def window(self) -> int | None:
        """Bytes worth having under way, or None without a rate."""
        return self._budget.window(self.link_lane.link)

    def behind(self, is_behind: bool) -> None:
        """Set if the lane has a backlog."""
        self._budget.is_behind(self.link_lane, is_behind)

    def open(self, grant: Callable[[int], None]) -> None:
        """Open the gate for a new connection; `grant` gets how many waiting bytes may go."""
        self.close()
        self._grant = grant

    def put(self, nbytes: int) -> None:
        """Add bytes before the gate."""
        if self.waiting or self._on_hold or self.is_limited or self._grant is None:
            self.waiting += nbytes
            self._look()
        else:
            self._grant(nbytes)

    def hold(self) -> None:
        """Stop granting: the line takes no more at present."""
        self._on_hold = True
        self._look()

    def go_on(self) -> None:
        """Resume granting."""
        if self._on_hold:
            self._on_hold = False
            self._look()

    def close(self) -> None:
        """Close the gate and drop all that waits: the connection is gone."""
        self._grant = None
        self.waiting = 0
        self._on_hold = False
        self._look()

    def take(self, most: int) -> int:
        """Grant up to `most` bytes. Returns how many."""
        taken = min(most, self.waiting)
        self.waiting -= taken
        if not self.waiting:
            self._look()
        if self._grant is not None and taken:
            self._grant(taken)
        return taken

    def _look(self) -> None:
        pump = self._uplink.pump(self.link_lane.link)
        if pump.gates.get(self.link_lane) is self:
            pump.look(self)

    @property
    def _budget(self) -> Budget:
        return self._uplink.pump(self.link_lane.link).budget
