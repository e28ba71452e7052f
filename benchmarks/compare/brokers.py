"""The RabbitMQ nodes of a measurement: private ones on loopback, for all that is measured."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from benchmarks.compare.until import START_WITHIN_S
from federation.brokers.addresses import ManagementAddress
from federation.brokers.management import ManagementApi
from isthmus.brokers.config import PLUGINS, BrokerSpec, BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.ports import free_ports

SCHEDULERS = 2
"""One would slow federation more than us."""
START_EACH_S = 15.0
_RIVALS = ("rabbitmq_federation", "rabbitmq_shovel")
QUEUE = "bench"


class Brokers:
    """One a site; each with an administrator, and federation and shovel beside what we need."""

    def __init__(
        self, installation: RabbitMQInstallation, folder: Path, sites: Iterable[str]
    ) -> None:
        self._admin = BrokerUser("bench", secrets.token_hex(16), ("administrator",))
        self.installation = installation
        self.by_site: dict[str, LocalBroker] = {}
        for site in sites:
            amqp, stream, management, dist, epmd = free_ports(5)
            spec = BrokerSpec(
                site,
                folder / "brokers" / site,
                amqp_port=amqp,
                stream_port=stream,
                management_port=management,
                dist_port=dist,
                epmd_port=epmd,
                users=(self._admin,),
                schedulers=SCHEDULERS,
                plugins=(*PLUGINS, *_RIVALS),
            )
            self.by_site[site] = LocalBroker(spec, installation)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as unless_started:
            for broker in self.by_site.values():
                unless_started.callback(broker.kill)
            # All at once on the same cores: each takes the longer, the more there are.
            deadline_s = START_WITHIN_S + START_EACH_S * len(self.by_site)
            await asyncio.gather(
                *(broker.start(deadline_s=deadline_s) for broker in self.by_site.values())
            )
            for site in self.by_site:
                # Federation writes it into each message, and a broker that has none looks up the
                # machine's name for it, every time: 50 ms where nobody answers.
                async with self.management(site) as api:
                    await api.put("cluster-name", body={"name": site})
            self._stack = unless_started.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def pids(self) -> list[int]:
        return [broker.pid for broker in self.by_site.values() if broker.pid is not None]

    def uri(self, site: str) -> str:
        """Return the AMQP address of a site's broker, as the administrator."""
        return self.by_site[site].spec.amqp_uri(self._admin)

    def through(self, site: str, port: int) -> str:
        """Return the `uri` of a site's broker through another port of this machine."""
        return self.uri(site).replace(f":{self.by_site[site].spec.amqp_port}/", f":{port}/")

    def management(self, site: str) -> ManagementApi:
        spec = self.by_site[site].spec
        return ManagementApi(
            ManagementAddress(spec.management_url, "/", self._admin.name, self._admin.password)
        )

    async def make_user(self, site: str, user: BrokerUser) -> None:
        """Make a user with all rights."""
        async with self.management(site) as api:
            await api.put(
                "users", user.name, body={"password": user.password, "tags": ",".join(user.tags)}
            )
            rights = {"configure": ".*", "write": ".*", "read": ".*"}
            await api.put("permissions", "/", user.name, body=rights)
