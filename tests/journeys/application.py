"""An application at one site: posts single messages and keeps whole what its queues are given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from relay.bulk_amqp import (
    BulkAmqpError,
    Connection,
    Consumer,
    Delivery,
    Publisher,
    PublishOutcome,
    connect,
)
from relay.bulk_amqp.content_header import (
    CLUSTER_ID,
    DELIVERY_MODE,
    MESSAGE_ID,
    NONE_PRESENT,
    USER_ID,
    header,
    headers,
    rewrite,
    text,
    without_headers,
)
from relay.bulk_amqp.field_table import entries, entry, long_string
from tests.journeys.live_mesh import LiveMesh
from tests.waiting import until

MARK = b"x-mesh-"


@dataclass(frozen=True, slots=True)
class Letter:
    """A message to be posted; `properties` are raw, from the property flags on."""

    body: bytes = b""
    key: bytes = b"order.new"
    properties: bytes = NONE_PRESENT


def letter(
    body: bytes,
    message_id: str = "",
    *,
    key: bytes = b"order.new",
    headers: bytes = b"",
    **texts: bytes,
) -> Letter:
    """A persistent one. `headers` are encoded entries; other keywords are headers with a text."""
    changes: dict[int, bytes | int | None] = {DELIVERY_MODE: 2}
    if message_id:
        changes[MESSAGE_ID] = message_id.encode()
    table = headers + b"".join(
        entry(name.replace("_", "-").encode(), long_string(value)) for name, value in texts.items()
    )
    return Letter(body, key, rewrite(NONE_PRESENT, changes, table))


@dataclass(frozen=True, slots=True)
class Received:
    """A message as a queue's consumer got it."""

    exchange: str
    key: bytes
    properties: bytes
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """Tag and value; None if it is absent."""
        return header(self.properties, name)

    def text_header(self, name: bytes) -> str | None:
        """A header that is a string."""
        value = self.header(name)
        return None if value is None else value[5:].decode()

    @property
    def flagged(self) -> bool:
        return self.header(b"x-mesh-redelivered") is not None

    @property
    def path(self) -> tuple[str, ...]:
        """Cluster IDs; empty for one published at this very site."""
        path = self.text_header(b"x-mesh-path")
        return tuple(path.split(",")) if path else ()

    @property
    def own_headers(self) -> dict[bytes, bytes]:
        """All but those that the mesh sets, with tag and value."""
        table = headers(self.properties) or b""
        return {
            name: table[at:end] for name, _, at, end in entries(table) if not name.startswith(MARK)
        }

    @property
    def mesh_headers(self) -> dict[bytes, bytes]:
        """Those that the mesh sets, with tag and value."""
        table = headers(self.properties) or b""
        return {name: table[at:end] for name, _, at, end in entries(table) if name.startswith(MARK)}

    @property
    def as_sent(self) -> bytes:
        """The properties without all that the mesh adds or takes away."""
        table = headers(self.properties) or b""
        kept = b"".join(
            table[start:end] for name, start, _, end in entries(table) if not name.startswith(MARK)
        )
        bare = rewrite(self.properties, {USER_ID: None, CLUSTER_ID: None})
        return _with_table(bare, kept)

    def text(self, which: int) -> str | None:
        """A property that is a string."""
        value = text(self.properties, which)
        return None if value is None else value.decode()


def _with_table(properties: bytes, table: bytes) -> bytes:
    """The properties with this header table instead of their own; without one if it is empty."""
    bare = without_headers(properties, (b"",))
    return rewrite(bare, {}, table) if table else bare


@dataclass(slots=True)
class Inbox:
    """A durable queue and everything that ever came out of it."""

    queue: str
    got: list[Received] = field(default_factory=list)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]

    async def has(self, count: int, *, within_s: float = 180) -> list[Received]:
        """Wait for so many; more is an error."""
        await until(
            lambda: len(self.got) >= count,
            lambda: f"{self.queue}: {len(self.got)} of {count}: {self.bodies[:20]}",
            within_s,
        )
        assert len(self.got) == count, self.bodies
        return self.got


class Application:
    """Made by `at`."""

    def __init__(self, uri: str, site: str) -> None:
        self.site = site
        self.uri = uri
        self._connections: list[Connection] = []
        self._publisher: Publisher | None = None

    async def post(self, exchange: str, *letters: Letter) -> PublishOutcome:
        """Publish them in this order, with confirms; what came of them."""
        if self._publisher is None or self._publisher.channel.close_reason is not None:
            self._publisher = Publisher(await (await self._connect()).channel())
            await self._publisher.start()
        publication = self._publisher.publish_many(
            [(exchange, one.key, one.properties, one.body) for one in letters]
        )
        async with asyncio.timeout(180):
            return await self._publisher.wait(publication)

    @property
    def closed_because(self) -> BulkAmqpError | None:
        """Why the broker closed the channel that letters are posted on."""
        return None if self._publisher is None else self._publisher.channel.close_reason

    async def declare(
        self, queue: str, exchange: str = "", key: str = "#", **arguments: object
    ) -> None:
        """A durable queue, bound to the exchange if one is named; `x_max_length` is an argument."""
        channel = await (await self._connect()).channel()
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        await channel.declare_queue(queue, durable=True, arguments=given)
        if exchange:
            await channel.bind_queue(queue, exchange, key)

    async def listen(
        self, exchange: str, key: str = "#", *, queue: str = "", **arguments: object
    ) -> Inbox:
        """Consume a queue that is bound so."""
        name = queue or f"inbox.{exchange}"
        await self.declare(name, exchange, key, **arguments)
        return await self.consume(name)

    async def consume(self, queue: str) -> Inbox:
        """Consume a queue that is there."""
        inbox = Inbox(queue)
        channel = await (await self._connect()).channel()
        consumer: Consumer

        def take(deliveries: list[Delivery]) -> None:
            inbox.got += [Received(*delivery[2:]) for delivery in deliveries]
            consumer.ack(deliveries[-1][0])

        consumer = Consumer(channel, queue, take)
        await consumer.start()
        return inbox

    async def reject_all(self, queue: str) -> None:
        """Consume a queue and reject whatever it has: to its dead-letter exchange."""
        channel = await (await self._connect()).channel()
        consumer: Consumer

        def take(deliveries: list[Delivery]) -> None:
            for delivery in deliveries:
                consumer.nack(delivery[0], requeue=False)

        consumer = Consumer(channel, queue, take)
        await consumer.start()

    async def lead(self, source: str, *destinations: str) -> None:
        """All of an exchange (a topic one, made if it is not there) goes to these as well."""
        channel = await (await self._connect()).channel()
        await channel.declare_exchange(source, "topic", durable=True)
        for destination in destinations:
            await channel.bind_exchange(destination, source, "#")

    async def close(self) -> None:
        for connection in self._connections:
            await connection.close()

    async def _connect(self) -> Connection:
        connection = await connect(self.uri, name=f"application {self.site}")
        self._connections.append(connection)
        return connection


@contextlib.asynccontextmanager
async def at(
    mesh: LiveMesh, *sites: str, as_operator: bool = False
) -> AsyncIterator[list[Application]]:
    """An application at each of these sites; as its broker's administrator it may read our queues
    too.
    """
    made = [
        Application(mesh.book.administrator(site).uri if as_operator else mesh.uri(site), site)
        for site in sites
    ]
    try:
        yield made
    finally:
        for application in made:
            await application.close()


async def standing(mesh: LiveMesh, site: str, flow: str) -> str:
    """Wait until this flow ("origin/exchange") stands at the site; why it does."""
    why: str = await mesh.until_told(
        lambda told: told["sites"][site]["standing_flows"].get(flow),
        f"{flow} stands at {site}",
        within_s=120,
    )
    return why


async def counters_say(mesh: LiveMesh, site: str, **expected: int) -> None:
    """Wait until the site's counters are just these; they follow what a queue gets."""

    def counted(told: dict[str, Any]) -> dict[str, int]:
        return {name: told["sites"][site][name] for name in expected}

    await mesh.until_told(
        lambda told: counted(told) == expected,
        lambda told: f"{site} says {expected}, but {counted(told)}",
        within_s=120,
    )
