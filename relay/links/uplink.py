"""Has what a site sends over its links wait for its turn, by its budget.

Each strand has a gate. Who sends puts bytes before it, and is granted some of them whenever it is
its turn: at once where no rate holds. One timer a site, which runs only while somebody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from federation.lanes import NORMAL
from federation.mesh import Link, Mesh
from relay.links.budget import Budget, Rates, Strand


class Timer(Protocol):
    """What `loop.call_later` gives."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


def _by_the_loop(delay_s: float, call: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(delay_s, call)


def rates_at(mesh: Mesh, site: str, minute: int) -> Rates:
    """What holds for what `site` sends, at that minute of its day."""
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
    """By the clock on the wall of this machine: 0 to 1439."""
    there = time.localtime(wall_ms / 1000)
    return there.tm_hour * 60 + there.tm_min


class Uplink:
    """All that one site sends over links. `now` as its nodes' clocks have it."""

    def __init__(self, now: Callable[[], float], call_later: CallLater = _by_the_loop) -> None:
        self.budget = Budget()
        self.now = now
        self._call_later = call_later
        self._gates: dict[Strand, Gate] = {}
        self._rates: Rates | None = None
        self._timer: Timer | None = None
        self._granting = False

    def change(self, rates: Rates) -> None:
        """From now on these hold. To be told as often as they may change."""
        if rates != self._rates:
            self._rates = rates
            self.budget.change(rates, self.now())
            self.grant()

    def gate(self, link: Link) -> Gate:
        """That of one strand."""
        strand = Strand(link.line_name, link.lane or NORMAL)
        if strand not in self._gates:
            self._gates[strand] = Gate(self, strand)
        return self._gates[strand]

    def forget(self, link: Link) -> None:
        """The strand is no more."""
        strand = Strand(link.line_name, link.lane or NORMAL)
        self._gates.pop(strand, None)
        self.budget.forget(strand, self.now())

    def stop(self) -> None:
        """Nothing is granted any more."""
        self._gates.clear()
        self._set_timer(None)

    def grant(self) -> None:
        """All that may be granted now; the rest when it is due."""
        if self._granting:
            return  # somebody who was granted something wants more: that comes in its turn
        self._granting = True
        try:
            while (turn := self.budget.next(self.now())) is not None:
                gate = self._gates.get(turn.strand)
                if gate is None:
                    self.budget.forget(turn.strand, self.now())
                    continue
                limited = self.budget.is_limited(turn.strand.line)
                taken = gate.take(turn.most if limited else gate.waiting)
                self.budget.spent(turn.strand, taken, self.now())
        finally:
            self._granting = False
        due = self.budget.due(self.now())
        self._set_timer(None if due is None else due - self.now())

    def _set_timer(self, delay_s: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if delay_s is None else self._call_later(max(0.0, delay_s), self._due)

    def _due(self) -> None:
        self._timer = None
        self.grant()


class Gate:
    """Before one strand: over all its connections, of which there is one at a time."""

    def __init__(self, uplink: Uplink, strand: Strand) -> None:
        self.waiting = 0
        """Bytes that stand before it."""
        self._uplink = uplink
        self._strand = strand
        self._grant: Callable[[int], None] | None = None
        self._on_hold = False

    @property
    def holds_back(self) -> bool:
        """Whether it is the rate, and not the line, that something waits for."""
        return self.waiting > 0 and not self._on_hold

    @property
    def is_limited(self) -> bool:
        """Whether a rate holds at present. A strand of which that was never so needs no gate."""
        return self._uplink.budget.is_limited(self._strand.line)

    @property
    def window(self) -> int | None:
        """Bytes that are worth having under way; None: as many as ever."""
        return self._uplink.budget.window(self._strand.line)

    def behind(self, is_behind: bool) -> None:
        """Whether the strand has a backlog."""
        self._uplink.budget.is_behind(self._strand, is_behind)

    def open(self, grant: Callable[[int], None]) -> None:
        """A new connection: `grant` is told how many of the bytes before the gate may go."""
        self.close()
        self._grant = grant

    def put(self, nbytes: int) -> None:
        """So many more stand before it."""
        if self.waiting or self._on_hold or self.is_limited or self._grant is None:
            self.waiting += nbytes
            self._look()
        else:
            self._grant(nbytes)

    def hold(self) -> None:
        """The line takes no more at present: grant nothing."""
        self._on_hold = True
        self._look()

    def go_on(self) -> None:
        """It does again."""
        if self._on_hold:
            self._on_hold = False
            self._look()

    def close(self) -> None:
        """The connection is gone, with all that stood before the gate."""
        self._grant = None
        self.waiting = 0
        self._on_hold = False
        self._look()

    def take(self, most: int) -> int:
        """Grant up to so many; how many it were."""
        taken = min(most, self.waiting)
        self.waiting -= taken
        if not self.waiting:
            self._look()
        if self._grant is not None and taken:
            self._grant(taken)
        return taken

    def _look(self) -> None:
        budget, now = self._uplink.budget, self._uplink.now()
        if self.holds_back:
            budget.wants(self._strand, now)
            self._uplink.grant()
        else:
            budget.wants_no_more(self._strand, now)
