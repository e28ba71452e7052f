"""Real brokers for tests: a few nodes shared by the whole run, a virtual host of its own a test.

A site is a broker and a virtual host, so a fresh virtual host (0.1 s) is as good as a fresh
broker (6 s). Only a test that kills or stops its broker needs one of its own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from isthmus.brokers.config import NET_TICK_S, BrokerSpec, BrokerUser, environment
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.ports import free_ports
from isthmus.brokers.private_brokers import peered
from tests.local_cluster import LocalCluster, local_cluster
from tests.waiting import until

START_WITHIN_S = 180.0
"""Patience for a machine on which many wait for a processor."""
ADMIN = BrokerUser("test-admin", "test-admin-password", tags=("administrator",))


@dataclass(frozen=True, slots=True)
class Vhost:
    """A virtual host of a running broker, and a user who may do everything in it."""

    broker: LocalBroker
    name: str
    user: str
    password: str

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def amqp_port(self) -> int:
        return self.broker.spec.amqp_port

    @property
    def stream_port(self) -> int:
        return self.broker.spec.stream_port

    @property
    def management_url(self) -> str:
        """Without /api and without credentials; `user` may use it."""
        return self.broker.spec.management_url

    @property
    def amqp_uri(self) -> str:
        return self.broker.spec.amqp_uri(BrokerUser(self.user, self.password), self.name)

    def uri_as(self, user: BrokerUser) -> str:
        """The AMQP address for another user of this virtual host (see add_user)."""
        return self.broker.spec.amqp_uri(user, self.name)

    async def add_user(self, user: BrokerUser) -> BrokerUser:
        """Make a user with permissions here. Give it a name that no other test uses."""
        await api(
            self.broker,
            "PUT",
            f"/users/{quote(user.name, safe='')}",
            {"password": user.password, "tags": ",".join(user.tags)},
        )
        await api(
            self.broker,
            "PUT",
            f"/permissions/{quote(self.name, safe='')}/{quote(user.name, safe='')}",
            {"configure": user.configure, "write": user.write, "read": user.read},
        )
        return user

    async def api(self, method: str, path: str, body: object = None) -> Any:
        """A call of the management API as administrator; {vhost} in the path is this one."""
        return await api(
            self.broker, method, path.replace("{vhost}", quote(self.name, safe="")), body
        )


async def own_vhost(broker: LocalBroker, label: str = "") -> Vhost:
    """A fresh virtual host with its own user, which stays as long as the broker's data."""
    name = f"{label or 'test'}-{secrets.token_hex(4)}"
    made = Vhost(broker=broker, name=name, user=name, password=secrets.token_hex(8))
    await api(broker, "PUT", f"/vhosts/{quote(name, safe='')}", {})
    await made.add_user(BrokerUser(made.user, made.password, tags=("policymaker",)))
    return made


async def api(broker: LocalBroker, method: str, path: str, body: object = None) -> Any:
    """Call the broker's management API, as administrator; `path` is what follows /api.

    Returns the decoded JSON, or None if there is none. Raises aiohttp.ClientResponseError.
    """
    credentials = base64.b64encode(f"{ADMIN.name}:{ADMIN.password}".encode()).decode()
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Basic {credentials}"}) as session,
        session.request(method, f"{broker.spec.management_url}/api{path}", json=body) as response,
    ):
        text = await response.text()
        if response.status >= 400:
            raise aiohttp.ClientResponseError(
                response.request_info,
                response.history,
                status=response.status,
                message=f"{response.reason}: {text}",
            )
        return await response.json() if text else None


async def rabbitmqctl(
    broker: LocalBroker, *words: str, within_s: float = START_WITHIN_S, given: str | None = None
) -> str:
    """Run rabbitmqctl with these words at a running broker; what it printed. `given`: what it reads
    from its standard input.
    """
    spec, installation = broker.spec, broker.installation
    program = await asyncio.create_subprocess_exec(
        *installation.command(
            spec.folder.absolute(), str(installation.home / "sbin" / "rabbitmqctl"), *words
        ),
        env=environment(spec, installation, os.environ),
        stdin=None if given is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    entered = None if given is None else given.encode()
    output, _ = await asyncio.wait_for(program.communicate(entered), within_s)
    assert program.returncode == 0, output.decode()
    return output.decode()


async def take_all_memory(broker: LocalBroker) -> None:
    """Set a memory limit of nothing; return once every connection is about to be blocked.

    A broker blocks a connection at the first message that comes after the connection has learnt of
    the alarm, which is some time after `rabbitmqctl` has returned.
    """
    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0")

    async def all_know() -> bool:
        return "running" not in await rabbitmqctl(broker, "-q", "list_connections", "state")

    await until(all_know, "every connection knows of the alarm", 60)


def local_broker(
    installation: RabbitMQInstallation,
    folder: Path,
    name: str,
    *,
    vhosts: tuple[str, ...] = ("/",),
    users: tuple[BrokerUser, ...] = (),
) -> LocalBroker:
    """A broker on free ports, not yet started, with an administrator besides `users`."""
    amqp, stream, management, dist, epmd = free_ports(5)
    spec = BrokerSpec(
        name=name,
        folder=folder,
        amqp_port=amqp,
        stream_port=stream,
        management_port=management,
        dist_port=dist,
        epmd_port=epmd,
        vhosts=vhosts,
        users=(ADMIN, *users),
    )
    return LocalBroker(spec, installation)


def broker_cluster(
    installation: RabbitMQInstallation,
    folder: Path,
    name: str,
    *,
    size: int = 3,
    vhosts: tuple[str, ...] = ("/",),
    users: tuple[BrokerUser, ...] = (),
    net_tick_s: int = NET_TICK_S,
) -> LocalCluster:
    """A cluster on free ports, not yet started, with an administrator besides `users`."""
    epmd, *ports = free_ports(4 * size + 1)
    specs = [
        BrokerSpec(
            f"{name}-{number + 1}",
            folder / f"{name}-{number + 1}",
            *ports[4 * number : 4 * number + 4],
            epmd_port=epmd,
            vhosts=vhosts,
            users=(ADMIN, *users),
            net_tick_s=net_tick_s,
        )
        for number in range(size)
    ]
    return local_cluster(peered(specs), installation)


def discard(broker: LocalBroker) -> None:
    """End a broker at once, and drop its data; its logs stay for whoever looks into a failure."""
    broker.kill()
    shutil.rmtree(broker.spec.folder / "data", ignore_errors=True)


class BrokerPool:
    """The brokers that all tests of a run share. Never kill, stop or suspend one of these."""

    def __init__(self, installation: RabbitMQInstallation, folder: Path) -> None:
        self.installation = installation
        self._folder = folder
        self._brokers: list[LocalBroker] = []

    async def broker(self, index: int = 0) -> LocalBroker:
        """The shared broker of that number, started when first asked for."""
        await self.brokers(index + 1)
        return self._brokers[index]

    async def brokers(self, count: int) -> list[LocalBroker]:
        """The first `count` shared brokers; those that do not run yet start side by side."""
        new = [
            local_broker(self.installation, self._folder / f"shared{index}", f"shared{index}")
            for index in range(len(self._brokers), count)
        ]
        with contextlib.ExitStack() as unless_all_run:
            for each in new:
                unless_all_run.callback(each.kill)
            await asyncio.gather(*(each.start(deadline_s=START_WITHIN_S) for each in new))
            unless_all_run.pop_all()
        self._brokers += new
        return self._brokers[:count]

    @contextlib.asynccontextmanager
    async def vhost(self, label: str = "", *, broker: int = 0) -> AsyncIterator[Vhost]:
        """A fresh virtual host with its own user, gone at the end with all that is in it."""
        where = await self.broker(broker)
        made = await own_vhost(where, label)
        try:
            yield made
        finally:
            await api(where, "DELETE", f"/vhosts/{quote(made.name, safe='')}")
            await api(where, "DELETE", f"/users/{quote(made.name, safe='')}")

    def close(self) -> None:
        """End all of them at once."""
        for broker in self._brokers:
            discard(broker)
