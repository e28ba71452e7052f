"""The applications of a simulated mesh: one at each site, which publishes and consumes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from hashlib import blake2b

from federation.mesh import Mesh
from relay.delivery.local_exchange import Outgoing
from simulation import load
from simulation.invariants import Arrived, check_site
from simulation.memory_broker import SiteBroker
from simulation.trace import Trace

AGAIN_AFTER_S = 0.5
"""A publish that the broker did not take is tried again."""


class Applications:
    """Publish to one exchange, and keep account of all that was confirmed and all that came."""

    def __init__(self, mesh: Mesh, exchange: str, trace: Trace) -> None:
        self.published: dict[str, dict[int, bytes]] = {
            site.cluster_id: {} for site in mesh.sites.values()
        }
        """By cluster ID of the origin: bodies of confirmed messages by number."""
        self.arrived: dict[str, list[Arrived]] = {site: [] for site in mesh.sites}
        """By site."""
        self._mesh = mesh
        self._exchange = exchange
        self._trace = trace
        self._repeated: set[tuple[str, int]] = set()
        """Origin and number: published once more under the same identity."""
        self._seen: dict[str, set[tuple[str, int]]] = {site: set() for site in mesh.sites}

    async def publish(self, broker: SiteBroker, wanted: load.Load, chance: random.Random) -> None:
        """All that the application of the broker's site publishes, at any times."""
        site = broker.site
        origin = self._mesh.sites[site].cluster_id
        loop = asyncio.get_running_loop()
        began = loop.time()
        again: Outgoing | None = None
        times = sorted(chance.uniform(0, wanted.for_s) for _ in range(wanted.messages))
        for number, due in enumerate(times):
            await asyncio.sleep(max(0.0, began + due - loop.time()))
            made = load.message(origin, number, chance)
            # Before the broker has it: what is bound at this site gets it at once.
            self.published[origin][number] = made.body
            self._trace.say("publish", site, f"{number} {_digest(made.body)}")
            await self._publish(broker, made)
            if again is not None:
                await self._publish(broker, again)
            again = made if load.is_repeated(made, chance) else None
            if again is not None:
                self._repeated.add((origin, number))

    async def _publish(self, broker: SiteBroker, made: Outgoing) -> None:
        while not broker.publish(self._exchange, made):
            await asyncio.sleep(AGAIN_AFTER_S)

    def listener(self, site: str) -> Callable[[str, Outgoing], None]:
        """Who is told of what comes into the site's application's queue."""

        def on_arrived(queue: str, message: Outgoing) -> None:
            one = load.arrived(message)
            which = one.origin, one.number
            if which in self._repeated and not one.path and which in self._seen[site]:
                return  # at its own site it was published twice: no mesh stands in between
            self.arrived[site].append(one)
            self._seen[site].add(which)
            said = f"{one.origin}/{one.number} {_digest(one.body)} {','.join(one.path)}"
            self._trace.say("again" if one.flagged else "arrived", site, said)

        return on_arrived

    def missing(self) -> Mapping[str, int]:
        """By site: how many published messages have not come yet."""
        published = sum(map(len, self.published.values()))
        return {
            site: published - len(seen)
            for site, seen in self._seen.items()
            if published > len(seen)
        }

    def check(self, *, doubt: bool) -> int:
        """Raise Broken unless all that was published has come to every site, once and in order.
        Gives the number of flagged copies; without `doubt` there may be none.
        """
        flags = 0
        for site, arrived in self.arrived.items():
            most = None if doubt else 0
            flags += sum(check_site(site, arrived, self.published, most_flags=most).values())
        return flags


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=4).hexdigest()
