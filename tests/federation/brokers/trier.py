"""A user at a site's broker, and the ways to try something there.

Every way raises Refused when the broker says that this user may not; anything else that goes wrong
is a fault of the trial, and raises as it is.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aio_pika
import aiohttp
from aio_pika.abc import AbstractChannel as Channel
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import AMQPException
from rstream import exceptions

from federation.brokers.addresses import StreamAddress
from federation.brokers.users import links_meeting_at
from federation.mesh import Link
from relay.bulk_amqp import AuthenticationFailed, connect
from relay.log.rabbit.stream_connection import StreamConnection
from tests.federation.live_site import Site
from tests.waiting import until

FILE = """\
mesh: MESH
outage_window: 1h
topology: custom
exchanges:
  - {name: orders}
  - {name: prices, from: [paris], to: [tokyo], mode: split}
sites: {paris: {}, tokyo: {}, sydney: {}}
links:
  - {from: paris, to: tokyo, both: true, dial: from}
  - {from: sydney, to: paris, both: true}
"""
"""Seen from paris: tokyo is behind NAT, so that both directions meet at paris."""
OTHER = "other"
"""An exchange and a queue of an application, which are none of the mesh's."""


class Refused(Exception):
    """The broker said that this user may not."""


@dataclass(frozen=True, slots=True)
class Trier:
    """One user at the broker of `site`."""

    site: Site
    user: str
    password: str

    def administrator(self) -> Trier:
        """Of the same broker."""
        admin = self.site.book.administrator(self.site.name)
        return Trier(self.site, admin.user, admin.password)

    def link(self, name: str) -> Link:
        return next(link for link in self.site.mesh.links if link.name == name)

    # -- AMQP --------------------------------------------------------------------------------

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A refusal closes the channel, so each trial has one of its own."""
        vhost = self.site.vhost
        connection = await aio_pika.connect(
            host=vhost.host,
            port=vhost.amqp_port,
            login=self.user,
            password=self.password,
            virtualhost=vhost.name,
        )
        async with connection:
            try:
                yield await connection.channel(on_return_raises=False)
            except AMQPException as error:
                if not re.search("ACCESS_REFUSED|user_id property", str(error)):
                    raise
                raise Refused(str(error)) from error

    async def log_in(self, vhost: str) -> None:
        port = self.site.vhost.amqp_port
        uri = f"amqp://{quote(self.user)}:{quote(self.password)}@127.0.0.1:{port}"
        try:
            connection = await connect(f"{uri}/{quote(vhost, safe='')}", name="trial")
        except AuthenticationFailed as error:
            raise Refused(str(error)) from error
        await connection.close()

    async def publish(self, exchange: str, key: str = "key", as_user: str | None = None) -> None:
        async with self.channel() as channel:
            target = await channel.get_exchange(exchange, ensure=False)
            message = aio_pika.Message(b"x", user_id=as_user)
            await target.publish(message, key, mandatory=False)

    async def publish_as_another(self) -> None:
        names = self.site.names
        exchanges = [
            *("orders", OTHER, names.dead_letters),
            *map(names.link_data, links_meeting_at(self.site.mesh, self.site.name)),
            *map(names.link_acks, links_meeting_at(self.site.mesh, self.site.name)),
        ]
        await self.any_of(
            [lambda x=one: self.publish(x, as_user="somebody.else") for one in exchanges]
        )

    async def hear(self, exchange: str) -> None:
        """Bind a queue to `exchange` that this user can have, if there is any.

        Each exchange has queues of its own: RabbitMQ 4.3 may answer the close of a connection
        while its exclusive queues still look locked.
        """
        names = self.site.names
        prefixes = [names.link_queue_prefix("tokyo"), names.link_queue_prefix("paris"), "own."]

        async def with_queue(name: str) -> None:
            async with self.channel() as channel:
                queue = await channel.declare_queue(name, exclusive=True)
                await queue.bind(exchange, "#")

        await self.any_of([lambda p=prefix: with_queue(f"{p}{exchange}") for prefix in prefixes])

    async def any_of(self, ways: list[Callable[[], Awaitable[None]]]) -> None:
        """Refused only if every way is."""
        refusals = []
        for way in ways:
            try:
                await way()
            except Refused as error:
                refusals.append(str(error))
            else:
                return
        raise Refused("; ".join(refusals))

    async def on_channel(self, do: Callable[[Channel], Awaitable[object]]) -> None:
        async with self.channel() as channel:
            await do(channel)

    async def get(self, queue: str) -> None:
        async with self.channel() as channel:
            await (await channel.get_queue(queue, ensure=False)).get(fail=False, no_ack=False)

    async def read_stream(self, queue: str) -> None:
        async with self.channel() as channel:
            await channel.set_qos(1)
            stream = await channel.get_queue(queue, ensure=False)
            await stream.consume(_passed_over, arguments={"x-stream-offset": "first"})

    # -- the stream protocol -----------------------------------------------------------------

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[StreamConnection]:
        vhost = self.site.vhost
        address = StreamAddress(vhost.host, vhost.stream_port, vhost.name, self.user, self.password)
        connection = StreamConnection(address, 10, "trial")
        try:
            await connection.start()
            await connection.authenticate(vhost.name, self.user, self.password)
            yield connection
        except (exceptions.AccessRefused, exceptions.VirtualHostAccessFailure) as error:
            raise Refused(repr(error)) from error
        finally:
            connection.abort("the trial is over")
            await connection.ended()

    async def on_stream(self, do: Callable[[StreamConnection], Awaitable[object]]) -> None:
        async with self.stream() as connection:
            await do(connection)

    async def store_offset(self) -> None:
        """The broker does not answer this: the administrator looks whether it is there. It looks
        when an offset of its own is, which it stored after this one.
        """
        log, mark = self.site.names.log, self.site.names.deliverer_mark
        async with self.stream() as mine, self.administrator().stream() as its:
            await mine.store_offset(log, mark, 7)
            await mine.stream_exists(log)  # answered after it was taken
            await its.store_offset(log, "of the administrator", 8)

            async def stored(name: str) -> int | None:
                try:
                    return await its.query_offset(log, name)
                except exceptions.OffsetNotFound:
                    return None

            await until(lambda: stored("of the administrator"), "its own offset", 10)
            if await stored(mark) != 7:
                raise Refused("the offset was not stored")

    # -- the management API ------------------------------------------------------------------

    async def api(self, method: str, path: str, body: object = None) -> Any:
        vhost = self.site.vhost
        url = f"{vhost.management_url}/api{path.replace('{vhost}', quote(vhost.name, safe=''))}"
        login = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Basic {login}"}) as session,
            session.request(method, url, json=body) as answer,
        ):
            text = await answer.text()
            if answer.status in (401, 403) or "ACCESS_REFUSED" in text:
                raise Refused(text)
            assert answer.status < 400, (path, answer.status, text)
            return await answer.json() if text else None

    async def close(self, connection: str) -> None:
        """By the name that the management API gives it."""
        await self.api("DELETE", f"/connections/{quote(connection, safe='')}")


async def _passed_over(_: AbstractIncomingMessage) -> None:
    """What comes is not what is tried."""
