"""What happened when: faults as they really began and were healed, and samples of the mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.schedule import Fault


@dataclass(slots=True)
class Strike:
    """A fault of the schedule; times in seconds since the first may strike."""

    fault: Fault
    began_s: float | None = None
    healed_s: float | None = None
    """A broker's is when it takes connections again."""
    trouble: str = ""
    """Why it could not be done, or not be healed."""

    def as_json(self) -> dict[str, Any]:
        return {
            **self.fault.as_json(),
            "began_s": self.began_s,
            "healed_s": self.healed_s,
            "trouble": self.trouble,
        }


@dataclass(frozen=True, slots=True)
class Sample:
    """The mesh as its status had it at some moment."""

    at_s: float
    delivered_per_s: dict[str, float | None]
    """By site, since the sample before; None where its node did not answer."""
    published_per_s: float
    """Confirmed to publishers, at all sites."""
    states: dict[str, str]
    """Of sites, and of links as paris-tokyo."""

    def as_json(self) -> dict[str, Any]:
        return {
            "at_s": self.at_s,
            "delivered_per_s": self.delivered_per_s,
            "published_per_s": self.published_per_s,
            "states": self.states,
        }


@dataclass(slots=True)
class Timeline:
    """Filled while the run goes on. `clock` gives seconds since the first fault may strike."""

    clock: Callable[[], float]
    strikes: dict[int, Strike] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    _counted: dict[str, int] = field(default_factory=dict)
    _published: int = 0

    def strike(self, fault: Fault) -> Strike:
        return self.strikes.setdefault(fault.number, Strike(fault))

    def now(self) -> float:
        return round(self.clock(), 2)

    def look(self, told: Mapping[str, Any], published: int) -> None:
        """Take a sample of a status; `published` messages were confirmed by now."""
        at_s = self.now()
        since_s = max(at_s - (self.samples[-1].at_s if self.samples else 0.0), 0.001)
        rates = {
            site: self._rate(site, figures.get("delivered"), since_s)
            for site, figures in told["sites"].items()
        }
        states = {site: str(figures["state"]) for site, figures in told["sites"].items()}
        states |= {f"{link['from']}-{link['to']}": str(link["state"]) for link in told["links"]}
        more, self._published = published - self._published, published
        self.samples.append(Sample(at_s, rates, round(more / since_s, 1), states))

    def _rate(self, site: str, delivered: int | None, since_s: float) -> float | None:
        if delivered is None:
            return None
        # A node that was started again counts from nothing.
        before = self._counted.get(site, delivered)
        self._counted[site] = delivered
        more = delivered - before if delivered >= before else delivered
        return round(more / since_s, 1)


async def sampled(
    timeline: Timeline,
    status: Callable[[], Any],
    published: Callable[[], int],
    seen: Callable[[Sample], None],
    every_s: float = 1.0,
) -> None:
    """Take samples for ever."""
    while True:
        timeline.look(await status(), published())
        seen(timeline.samples[-1])
        await asyncio.sleep(every_s)
