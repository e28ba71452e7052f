"""Applications of a simulated mesh: at each site one that publishes and consumes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from hashlib import blake2b

from federation.mesh import Exchange, Mesh, OrderRule
from relay.delivery.local_exchange import Outgoing
from simulation import load
from simulation.invariants import Arrived, InvariantBroken, check_order, check_site
from simulation.losses import MessageOf
from simulation.memory_brokers import SiteBroker, application_queue
from simulation.references import FetchedBodies
from simulation.trace import Trace

AGAIN_AFTER_S = 0.5
"""Wait before a refused publish is tried again."""


class Applications:
    """Publishers to all exchanges, with the account of all confirmed and all arrived messages.

    The messages of an origin are numbered over all its exchanges; some are published to two
    exchanges, with the same identity and content.
    """

    def __init__(self, mesh: Mesh, trace: Trace) -> None:
        self.published: dict[str, dict[str, dict[int, bytes]]] = {
            exchange: {site.cluster_id: {} for site in mesh.sites.values()}
            for exchange in mesh.exchanges
        }
        """Bodies of confirmed messages by exchange, cluster ID of the origin, and number."""
        self.arrived: dict[str, dict[str, list[Arrived]]] = {
            exchange: {site: [] for site in mesh.sites} for exchange in mesh.exchanges
        }
        """Messages in the applications' queues, by exchange and site."""
        self.destroyed: set[MessageOf] = set()
        """Messages that a broker has lost for good, perhaps after some sites had got them."""
        self.moved: set[MessageOf] = set()
        """Messages destroyed, or taken once more by a broker: they may come behind later ones."""
        self._refused: dict[str, set[MessageOf]] = {site: set() for site in mesh.sites}
        """Messages that a queue of each site's application has refused to a deliverer."""
        self.broken: InvariantBroken | None = None
        """Violation by the first message that arrived and that nobody had published, or of which
        the body could not be fetched.
        """
        self.bodies = FetchedBodies(mesh)
        """Bodies of large messages that came without them."""
        self._publish_all = False
        """True once these applications publish, and nobody else does."""
        self._mesh = mesh
        self._exchanges = tuple(mesh.exchanges)
        self._has_keys = any(one.partitions > 1 for one in mesh.exchanges.values())
        self._exchange_of = {application_queue(one): one for one in self._exchanges}
        self._trace = trace
        self._repeated: set[MessageOf] = set()
        """Messages published once more under the same identity."""
        self.failing_over: dict[str, SiteBroker] = {}
        """Second broker at which a site's application publishes at present, by site."""
        self._copied: dict[MessageOf, tuple[str, str]] = {}
        """Sites of the messages that were published at two: they come by the one way or the other.
        """
        self._seen: dict[str, set[MessageOf]] = {site: set() for site in mesh.sites}

    async def publish(self, broker: SiteBroker, wanted: load.Load, chance: random.Random) -> None:
        """Publish the whole load of the broker's site, at random times."""
        self._publish_all = True
        site = broker.site
        origin = self._mesh.sites[site].cluster_id
        loop = asyncio.get_running_loop()
        began = loop.time()
        again: tuple[str, Outgoing] | None = None
        times = sorted(chance.uniform(0, wanted.for_s) for _ in range(wanted.messages))
        for number, due in enumerate(times[: wanted.first]):
            await asyncio.sleep(max(0.0, began + due - loop.time()))
            exchange = chance.choice(self._exchanges)
            made = load.message(origin, number, wanted.big_one_in, chance)
            if self._has_keys:
                made = made._replace(routing_key=load.key_of(number))
            await self._publish_new(broker, exchange, number, made)
            other = self.failing_over.get(site)
            if other is not None and load.has_identity(made):
                self._copied[exchange, origin, number] = site, other.site
                await self._publish(other, exchange, made)
            if again is not None:
                await self._publish(broker, *again)
            again = (exchange, made) if load.is_repeated(made, chance) else None
            if again is not None:
                self._repeated.add((exchange, origin, number))
            others = [one for one in self._exchanges if one != exchange]
            if others and load.is_for_another(made, chance):
                await self._publish_new(broker, chance.choice(others), number, made)

    async def _publish_new(
        self, broker: SiteBroker, exchange: str, number: int, made: Outgoing
    ) -> None:
        origin = self._mesh.sites[broker.site].cluster_id
        # Recorded before the broker has the message: queues bound at this site get it at once.
        self.published[exchange][origin][number] = made.body
        self._trace.add("publish", broker.site, f"{exchange} {number} {_digest(made.body)}")
        await self._publish(broker, exchange, made)

    async def _publish(self, broker: SiteBroker, exchange: str, made: Outgoing) -> None:
        while not broker.publish(exchange, made):
            await asyncio.sleep(AGAIN_AFTER_S)

    def listener(self, site: str) -> Callable[[str, Outgoing], None]:
        """Return the callback for messages that come into the queues of the site's application."""
        exchange_of = self._exchange_of

        def on_arrived(queue: str, message: Outgoing) -> None:
            exchange = exchange_of[queue]
            whole = self._whole(site, exchange, message)
            if whole is None:
                return
            if whole is not message:
                self._trace.add("referred", site, f"{exchange} {len(whole.body)} bytes")
            one = load.arrived(whole)
            which = exchange, one.origin, one.number
            if self._publish_all and one.number not in self.published[exchange][one.origin]:
                # Another message may never come for that: a world need not wait for it.
                self.broken = self.broken or InvariantBroken(
                    f"I3 at {site}: {one.origin}/{one.number} was never published"
                )
            is_own = site in self._copied.get(which, ()) or (
                which in self._repeated and not one.path
            )
            if is_own and which in self._seen[site]:
                return  # published at this site too, where no mesh stands between
            self.arrived[exchange][site].append(one)
            self._seen[site].add(which)
            arrival = f"{one.origin}/{one.number} {_digest(one.body)} {','.join(one.path)}"
            self._trace.add("again" if one.flagged else "arrived", site, arrival)

        return on_arrived

    def _whole(self, site: str, exchange: str, message: Outgoing) -> Outgoing | None:
        """Return the message with its body; None, and `broken`, without."""
        try:
            return self.bodies.whole(site, exchange, message)
        except InvariantBroken as broken:
            self.broken = self.broken or broken
            return None

    def refusals(self, site: str) -> Callable[[str, Outgoing], None]:
        """Return the callback for messages that the queues of the site's application refuse."""
        refused = self._refused[site]

        def on_refused(queue: str, message: Outgoing) -> None:
            exchange = self._exchange_of[queue]
            if (whole := self._whole(site, exchange, message)) is not None:
                refused.add((exchange, *load.origin_and_number(whole.body)))

        return on_refused

    def has_come(self, site: str, which: MessageOf) -> bool:
        """True if a message was ever in the queues of the site's application."""
        return which in self._seen[site]

    def missing(self) -> Mapping[str, int]:
        """Return how many published messages have not come yet, by site."""
        published = self.published_by().total()
        return {
            site: lacks
            for site, seen in self._seen.items()
            if (lacks := published - len(seen | self.destroyed))
        }

    def check(self, *, doubt: bool, ordered: bool = True, in_turns: bool = True) -> int:
        """Raise InvariantBroken unless all published messages have come to every site, once and, if
        `ordered`, in order: where that is best effort, all but those that a queue has refused; and
        unless the bodies of those that came without can still be fetched.

        Return the number of flagged copies; without `doubt` there may be none. `in_turns`: see
        `check_site`.
        """
        self.bodies.check()
        most = None if doubt else 0
        flagged = 0
        for exchange, by_site in self.arrived.items():
            for site, arrived in by_site.items():
                flagged += check_site(
                    site,
                    arrived,
                    self.published[exchange],
                    ordered=False,
                    most_flags=most,
                    destroyed=_of(exchange, self.destroyed),
                    moved=_of(exchange, self.moved),
                    in_turns=in_turns,
                ).total()
                if ordered:
                    self._check_order(self._mesh.exchanges[exchange], site)
        return flagged

    def _check_order(self, exchange: Exchange, site: str) -> None:
        """Raise InvariantBroken unless messages came in order: those of a key, where the exchange
        has partitions, and those that no queue has refused, where its order is best effort; but for
        those published at two sites.
        """
        is_strict = exchange.order is OrderRule.STRICT
        refused = set() if is_strict else self._refused[site]
        overtaken = _of(exchange.name, refused | self.moved | self._copied.keys())
        numbers: dict[tuple[str, bytes], dict[int, None]] = defaultdict(dict)
        for one in self.arrived[exchange.name][site]:
            if not one.flagged:
                key = load.key_of(one.number) if exchange.partitions > 1 else b""
                numbers[one.origin, key].setdefault(one.number)
        for (origin, _), came in numbers.items():
            check_order(site, origin, came, overtaken)

    def surely_recorded(self) -> Counter[str]:
        """Return how many messages ledgers have to record, by cluster ID of the origin.

        Messages that a log has lost for good do not count, since their rows may be lost as well;
        nor do those published at two sites, of which rows may name the second.
        """
        counts = self.published_by()
        counts.subtract(origin for _, origin, _ in self.destroyed | self._copied.keys())
        return counts

    def published_by(self) -> Counter[str]:
        """Return how many messages were confirmed, by cluster ID of the origin."""
        counts = Counter[str]()
        for by_origin in self.published.values():
            counts.update({origin: len(some) for origin, some in by_origin.items()})
        return counts

    def came_once_more(self, site: str) -> Counter[str]:
        """Return how many copies without a flag came to a site behind another such copy, by cluster
        ID of the origin: those that `check` lets pass; with all that was published at a second
        site, by that site.
        """
        counts = Counter(self._mesh.sites[second].cluster_id for _, second in self._copied.values())
        for by_site in self.arrived.values():
            came = Counter((one.origin, one.number) for one in by_site[site] if not one.flagged)
            for (origin, _), copies in came.items():
                counts[origin] += copies - 1
        return counts

    def all_arrived(self) -> list[Arrived]:
        """Return the messages that arrived at all sites, of all exchanges."""
        return [
            one for by_site in self.arrived.values() for some in by_site.values() for one in some
        ]


def _of(exchange: str, messages: set[MessageOf]) -> set[tuple[str, int]]:
    """Return origin and number of the messages that were published to an exchange."""
    return {(origin, number) for where, origin, number in messages if where == exchange}


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=4).hexdigest()
