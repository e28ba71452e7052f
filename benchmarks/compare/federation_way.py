"""RabbitMQ's own exchange federation: an upstream a link, dialled by the site that receives."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.layout import Layout
from benchmarks.compare.until import until
from benchmarks.compare.way import Lines
from relay.bulk_amqp import connect


class FederationWay:
    """Federation at its defaults (acknowledgements on confirm), except for the given settings."""

    servers = None

    def __init__(self, name: str = "federation", prefetch: int | None = None) -> None:
        self.name = name
        self.publishes_to = self.arrives_at = f"{name}.orders"
        self._prefetch = prefetch

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        for site in layout.sites:
            connection = await connect(brokers.uri(site))
            channel = await connection.channel()
            await channel.declare_exchange(self.publishes_to, "topic", durable=True)
            await connection.close()
        for sender, receiver in layout.links:
            port = await lines.port_of(self.name, receiver, sender, shared=layout.one_uplink)
            value: dict[str, object] = {
                "uri": brokers.through(sender, port),
                "max-hops": layout.hops,
                "exchange": self.publishes_to,
            }
            if self._prefetch is not None:
                value["prefetch-count"] = self._prefetch
            upstream = f"{self.name}-{sender}"
            async with brokers.management(receiver) as api:
                await api.put(
                    "parameters", "federation-upstream", "/", upstream, body={"value": value}
                )
        for site in layout.sites:
            upstreams = [{"upstream": f"{self.name}-{a}"} for a, b in layout.links if b == site]
            if not upstreams:
                continue
            async with brokers.management(site) as api:
                await api.put(
                    *("parameters", "federation-upstream-set", "/", self.name),
                    body={"value": upstreams},
                )
                await api.put(
                    *("policies", "/", self.name),
                    body={
                        "pattern": f"^{self.publishes_to}$",
                        "apply-to": "exchanges",
                        "definition": {"federation-upstream-set": self.name},
                    },
                )

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        """Every link has bound what is bound at its own end."""

        async def linked() -> bool:
            for sender in layout.sites:
                wanted = sum(a == sender and b in layout.destinations for a, b in layout.links)
                async with brokers.management(sender) as api:
                    path = ("exchanges", "/", self.publishes_to, "bindings", "source")
                    bound = [
                        one
                        for one in await api.get(*path) or ()
                        if str(one["destination"]).startswith("federation: ")
                    ]
                if len(bound) < wanted:
                    return False
            return True

        await until(linked, "federation's links run")

    def relay_pids(self) -> Sequence[int]:
        return ()

    async def close(self) -> None:
        """Leave the federation to end with its brokers."""
