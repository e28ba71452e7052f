"""Which faults strike where, when, and for how long: drawn from a seed, before anything runs.

Pure: the same seed and the same settings give the same list, on any machine.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

On = Literal["site", "link", "mesh"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What may go wrong. Times in seconds; a fault without a duration is over at once."""

    on: On
    """What nobody else may strike meanwhile: a site, a pair of sites, or everything."""
    shortest_s: float
    longest_s: float
    rest_s: float = 0.0
    """For so long after it nothing else strikes there: what it broke has to stand again before
    the next fault means anything."""
    details: tuple[str, ...] = ("",)
    """One of these is drawn: which way, whose end."""
    doubt: bool = False
    """Publishes to the site's exchanges may be left in doubt: flagged copies may come."""
    of_nodes: bool = False
    """Only for SHARED_SITE, where that has several nodes."""
    of_group: bool = False
    """Only in a mesh with a multicast group."""


EXCHANGE = "orders"
SHARED_SITE = "tokyo"
"""The site that has several nodes, in runs that have such."""


WAYS = ("there", "back")
"""Of a pair of sites as it is named: paris-tokyo is there from paris to tokyo."""

KINDS: Mapping[str, Kind] = {
    "kill-node": Kind("site", 0.5, 8.0, rest_s=5.0, doubt=True),
    "hang-node": Kind("site", 40.0, 70.0, rest_s=5.0, doubt=True),
    "kill-broker": Kind("site", 0.5, 8.0, rest_s=5.0, doubt=True),
    "hang-broker": Kind("site", 40.0, 70.0, rest_s=10.0, doubt=True),
    "cut": Kind("link", 3.0, 40.0, details=("held", "forgotten", "unanswered")),
    "one-way": Kind("link", 3.0, 40.0, details=WAYS),
    "64-kbit": Kind("link", 8.0, 40.0),
    "300-ms": Kind("link", 8.0, 40.0),
    "reset": Kind("link", 0.0, 0.0),
    "half-open": Kind("link", 3.0, 40.0, details=("client", "target")),
    "disk-alarm": Kind("site", 5.0, 20.0, rest_s=3.0, doubt=True),
    "memory-alarm": Kind("site", 5.0, 20.0, rest_s=3.0, doubt=True),
    "queue-full": Kind("site", 5.0, 20.0, rest_s=3.0, doubt=True),
    "queue-purged": Kind("site", 0.0, 0.0),
    "queue-deleted": Kind("site", 1.0, 8.0),
    "log-deleted": Kind("mesh", 8.0, 20.0, rest_s=15.0, details=WAYS, doubt=True),
    "log-cut-short": Kind("mesh", 1.0, 8.0, rest_s=10.0, details=WAYS, doubt=True),
    "end-node": Kind("site", 0.5, 8.0, rest_s=5.0, doubt=True, of_nodes=True),
    "hang-standby": Kind("site", 5.0, 40.0, rest_s=5.0, of_nodes=True),
    "hang-zookeeper": Kind("site", 5.0, 40.0, rest_s=5.0, of_nodes=True),
    "hang-cassandra": Kind("site", 1.0, 30.0, rest_s=5.0, of_nodes=True),
    "kill-cassandra": Kind("site", 0.5, 8.0, rest_s=5.0, of_nodes=True),
    "deaf": Kind("site", 3.0, 40.0, of_group=True),
}
"""`hang` is longer than every time-out: links miss each other after 15 s, brokers after 20 s."""


def kinds_of(*, nodes: bool = False, group: bool = False) -> tuple[str, ...]:
    """Return the kinds of runs where SHARED_SITE has several nodes, and the mesh a group."""
    return tuple(
        name for name, kind in KINDS.items() if nodes >= kind.of_nodes and group >= kind.of_group
    )


USUAL = kinds_of()

BETWEEN_S = (1.0, 6.0)
"""From the beginning of a fault to that of the next."""
AT_ONCE = 3
"""More of them leave nothing of four sites to look at."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One that is to come. Times in seconds since the first may strike."""

    number: int
    kind: str
    where: str
    """A site, or two with a dash."""
    at_s: float
    lasts_s: float
    detail: str = ""

    @property
    def ends_s(self) -> float:
        return round(self.at_s + self.lasts_s, 1)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.where.split("-"))

    def __str__(self) -> str:
        said = f"{self.at_s:7.1f} s  #{self.number} {self.kind} {self.where}"
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return said + (f" ({self.detail})" if self.detail else "") + lasts

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def draw(
    seed: int,
    within_s: float,
    sites: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    kinds: Sequence[str] = USUAL,
) -> list[Fault]:
    """Faults that all begin and end `within_s`. Each kind comes once before any comes again, as
    long as there is time for it.

    Raises KeyError for a kind that there is not.
    """
    return _Drawing(random.Random(f"chaos {seed}"), within_s, sites, pairs, kinds).faults()


def logs_site(where: str, detail: str) -> str:
    """At whose log a fault is that strikes one, and the line from there to the other site."""
    return where.split("-")[WAYS.index(detail)]


class _Drawing:
    def __init__(
        self,
        chance: random.Random,
        within_s: float,
        sites: Sequence[str],
        pairs: Sequence[tuple[str, str]],
        kinds: Sequence[str],
    ) -> None:
        self._chance = chance
        self._within_s = within_s
        self._kinds = {kind: KINDS[kind] for kind in kinds}
        links = ["-".join(pair) for pair in pairs]
        self._places: dict[On, list[str]] = {"site": list(sites), "link": links, "mesh": links}
        ends = Counter(site for pair in pairs for site in pair)
        self._inner = {site for site, count in ends.items() if count > 1}
        """Sites with another neighbour, when the line to one is cut."""
        self._free_s = dict.fromkeys([*sites, *links], 0.0)
        """From when on something may strike there."""
        self._deck: list[str] = []
        self._drawn: list[Fault] = []

    def faults(self) -> list[Fault]:
        at_s = 0.0
        while True:
            at_s += self._chance.uniform(*BETWEEN_S)
            fault = self._next(at_s)
            if fault is None:
                return self._drawn
            self._drawn.append(fault)
            at_s = fault.at_s

    def _next(self, at_s: float) -> Fault | None:
        for again in (False, True):
            if again or not self._deck:
                self._deck = list(self._kinds)
                self._chance.shuffle(self._deck)
            for kind in self._deck:
                fault = self._of(kind, at_s)
                if fault is not None:
                    self._deck.remove(kind)
                    return fault
        return None

    def _of(self, name: str, at_s: float) -> Fault | None:
        """One of that kind as soon as may be; None if there is no time left for it."""
        kind = self._kinds[name]
        places = [SHARED_SITE] if kind.of_nodes else self._places[kind.on]
        at_s = max(at_s, self._not_crowded_s())
        if kind.on == "mesh":
            at_s = max(at_s, *self._free_s.values())
        else:
            at_s = max(at_s, min(self._free_s[place] for place in places))
        at_s = math.ceil(at_s * 10) / 10
        if at_s + kind.shortest_s > self._within_s:
            return None
        free = [place for place in places if self._free_s[place] <= at_s]
        where = self._chance.choice(free)
        longest_s = min(kind.longest_s, self._within_s - at_s)
        lasts_s = math.floor(self._chance.uniform(kind.shortest_s, longest_s) * 10) / 10
        detail = self._chance.choice(kind.details)
        if kind.on == "mesh" and logs_site(where, detail) not in self._inner:
            detail = WAYS[1 - WAYS.index(detail)]
        fault = Fault(len(self._drawn) + 1, name, where, at_s, lasts_s, detail)
        for place in self._free_s if kind.on == "mesh" else (where,):
            self._free_s[place] = round(fault.ends_s + kind.rest_s, 1)
        return fault

    def _not_crowded_s(self) -> float:
        """From when on there are fewer at once than there may be."""
        ends = sorted((fault.ends_s for fault in self._drawn), reverse=True)
        return ends[AT_ONCE - 1] if len(ends) >= AT_ONCE else 0.0
