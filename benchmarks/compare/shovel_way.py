"""RabbitMQ's shovel: from a quorum queue of one site to an exchange of the other, on confirm."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.layout import Layout
from benchmarks.compare.until import until
from benchmarks.compare.way import Lines
from relay.bulk_amqp import connect

_QUEUE = "shovel.egress"


class ShovelWay:
    """Shovel at its defaults, for one hop only: it breaks no loops."""

    name = "shovel"
    publishes_to = "shovel.orders"
    arrives_at = "shovel.orders.in"
    servers = None

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        for site in layout.sites:
            connection = await connect(brokers.uri(site))
            channel = await connection.channel()
            for exchange in (self.publishes_to, self.arrives_at):
                await channel.declare_exchange(exchange, "topic", durable=True)
            await connection.close()
        for sender, receiver in layout.links:
            connection = await connect(brokers.uri(sender))
            channel = await connection.channel()
            await channel.declare_queue(_QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
            await channel.bind_queue(_QUEUE, self.publishes_to, "#")
            await connection.close()
            port = await lines.port_of(self.name, receiver, sender, shared=layout.one_uplink)
            value = {
                "src-protocol": "amqp091",
                "src-uri": brokers.through(sender, port),
                "src-queue": _QUEUE,
                "dest-protocol": "amqp091",
                "dest-uri": brokers.uri(receiver),
                "dest-exchange": self.arrives_at,
                "ack-mode": "on-confirm",
            }
            async with brokers.management(receiver) as api:
                await api.put("parameters", "shovel", "/", f"from-{sender}", body={"value": value})

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        async def consumed() -> bool:
            for sender, _ in layout.links:
                async with brokers.management(sender) as api:
                    queue = await api.get("queues", "/", _QUEUE)
                if not queue or not queue.get("consumers"):
                    return False
            return True

        await until(consumed, "the shovels run")

    def relay_pids(self) -> Sequence[int]:
        return ()

    async def close(self) -> None:
        """Leave the shovels to end with their brokers."""
