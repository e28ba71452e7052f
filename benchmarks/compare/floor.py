"""Cost of the brokers alone: no relay, no federation, nothing between the sites.

Publish into an egress queue and consume it at each origin, publish into the destination queues as
much as arrives there and consume that. What a way costs above this is its own.
"""

from __future__ import annotations

from benchmarks.compare.arena import Arena, Load
from benchmarks.compare.brokers import QUEUE
from relay.bulk_amqp import connect

_OUT, _IN, _EGRESS = "floor.orders", "floor.orders.in", "floor.egress"


class Floor:
    """Floor of an arena. Declared once, measured as often as the ways."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena

    async def set_up(self) -> None:
        arena = self._arena
        for site in arena.layout.sites:
            connection = await connect(arena.brokers.uri(site))
            channel = await connection.channel()
            for exchange in (_OUT, _IN):
                await channel.declare_exchange(exchange, "topic", durable=True)
            if site in arena.layout.origins:
                arguments = {"x-queue-type": "quorum"}
                await channel.declare_queue(_EGRESS, durable=True, arguments=arguments)
                await channel.bind_queue(_EGRESS, _OUT, "#")
            if site in arena.layout.destinations:
                at_home = [_OUT] if site in arena.layout.origins else []
                for exchange in (_IN, *at_home):
                    await channel.bind_queue(QUEUE, exchange, "#")
            await connection.close()
        await arena.consume_too(_EGRESS, arena.layout.origins)

    async def broker_us(self, load: Load) -> float:
        """The brokers' CPU a delivery at another site, in microseconds."""
        arena, layout = self._arena, self._arena.layout
        before = arena.brokers_cpu_s()
        egress = {f"{site} {_EGRESS}": load.count for site in layout.origins}
        home = {site: load.count for site in layout.destinations if site in layout.origins}
        await arena.send(layout.origins, _OUT, load, {**egress, **home})
        for site in layout.destinations:
            others = sum(origin != site for origin in layout.origins)
            count = load.count * others
            await arena.send((site,), _IN, load, {site: count}, count=count)
        used = arena.brokers_cpu_s() - before
        return used / (load.count * layout.remote_deliveries) * 1e6
