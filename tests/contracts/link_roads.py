"""A link's way over a meeting broker, real or in memory, and what may happen there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Protocol

from isthmus.brokers.config import BrokerUser
from relay.bulk_amqp import Channel, Publisher, connect
from relay.bulk_amqp.content_header import NONE_PRESENT, USER_ID, rewrite
from relay.links.transport.link_end import Carried, LinkEnd
from relay.links.transport.memory import MemoryEnd, MemoryLineSettings, MemoryMeeting
from relay.links.transport.rabbit import LinkEndAddress, RabbitLinkConnector
from relay.links.wire import HEAD_BYTES
from tests.live_brokers import Vhost, rabbitmqctl
from wan_proxy.proxy import WanProxy

QUEUE_BYTES = 4 * 1024 * 1024


class Road(Protocol):
    """One link's way over a meeting broker, whichever, and what may happen there."""

    sender_user: str
    receiver_user: str

    async def sender(self) -> LinkEnd: ...
    async def receiver(self) -> LinkEnd: ...
    async def stranger(self, frame: bytes) -> str:
        """Someone else publishes where the sender does; gives the name."""

    async def nameless(self, frame: bytes) -> None:
        """... somebody who does not say who it is."""

    async def purge(self) -> None:
        """The receiver's queue."""

    async def delete_queue(self) -> None:
        """The receiver's."""

    async def reset(self) -> None:
        """Every connection breaks."""

    async def go_away(self) -> None:
        """No new connection can be made."""


class Ears:
    """Writes down what an end is told."""

    def __init__(self) -> None:
        self.carried: list[Carried] = []
        self.nobody: list[bytes] = []
        self.closed: list[str] = []

    @property
    def frames(self) -> list[bytes]:
        return [frame for _, frame in self.carried]

    def on_frames(self, frames: Sequence[Carried]) -> None:
        assert frames
        assert not self.closed
        self.carried += frames

    def on_returned(self, head: bytes) -> None:
        self.nobody.append(head)

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)


def listening(end: LinkEnd) -> Ears:
    ears = Ears()
    end.listen(ears)
    return ears


def frame(text: str, size: int = 40) -> bytes:
    """`size` bytes that begin with the text."""
    return (text.encode() + b" ").ljust(max(size, HEAD_BYTES), b".")


class MemoryRoad:
    sender_user, receiver_user = "paris", "tokyo"

    def __init__(self) -> None:
        self.meeting = MemoryMeeting(asyncio.get_running_loop().call_later, queue_bytes=QUEUE_BYTES)
        self.line = MemoryLineSettings()
        self._made: list[MemoryEnd] = []

    async def sender(self) -> MemoryEnd:
        end = self.meeting.sender_end(self.sender_user, self.line)
        self._made.append(end)
        return end

    async def receiver(self) -> MemoryEnd:
        end = self.meeting.receiver_end(self.receiver_user, self.line)
        self._made.append(end)
        return end

    async def stranger(self, frame: bytes) -> str:
        self.meeting.sender_end("mallory").send(frame)
        return "mallory"

    async def nameless(self, frame: bytes) -> None:
        self.meeting.sender_end("").send(frame)

    async def purge(self) -> None:
        self.meeting.purge()

    async def delete_queue(self) -> None:
        self._made[-1].lost("the link's queue is gone: deleted")

    async def reset(self) -> None:
        self.meeting.close_all("connection reset")

    async def go_away(self) -> None:
        self.meeting.reachable = False


class RabbitRoad:
    """A virtual host; the ends' connections pass through a line of the WAN proxy."""

    def __init__(self, vhost: Vhost, proxy: WanProxy) -> None:
        unique = secrets.token_hex(4)
        self.sender_user, self.receiver_user = f"paris-{unique}", f"tokyo-{unique}"
        self._mallory = f"mallory-{unique}"
        self._vhost = vhost
        self._proxy = proxy
        self._channel: Channel | None = None

    async def open(self) -> None:
        vhost = self._vhost
        for user in (self.sender_user, self.receiver_user, self._mallory):
            await vhost.add_user(BrokerUser(user, "secret"))
        connection = await connect(vhost.amqp_uri, name="contract test, outside")
        self._channel = await connection.channel()
        for exchange in ("data", "acks"):
            await self._channel.declare_exchange(exchange, "fanout")
        await self._proxy.open_line("line", vhost.host, vhost.amqp_port)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.connection.close()

    async def sender(self) -> LinkEnd:
        return await self._connect(self.sender_user, "data", "acks", "sender", is_receiver=False)

    async def receiver(self) -> LinkEnd:
        return await self._connect(self.receiver_user, "acks", "data", "queue", is_receiver=True)

    async def _connect(
        self, user: str, sends_to: str, hears_from: str, queue: str, *, is_receiver: bool
    ) -> LinkEnd:
        uri = self._vhost.uri_as(BrokerUser(user, "secret"))
        if "line" in self._proxy.lines:
            port = self._proxy.line("line").port
            uri = uri.replace(f":{self._vhost.amqp_port}", f":{port}")
        else:
            uri = uri.replace(f":{self._vhost.amqp_port}", ":1")
        address = LinkEndAddress(
            uri=uri,
            user=user,
            sends_to=sends_to,
            hears_from=hears_from,
            queue=queue,
            is_receiver=is_receiver,
            queue_bytes=QUEUE_BYTES,
            name="contract test",
        )
        return await RabbitLinkConnector(address).connect()

    async def stranger(self, frame: bytes) -> str:
        await self._publish(self._mallory, frame, {USER_ID: self._mallory.encode()})
        return self._mallory

    async def nameless(self, frame: bytes) -> None:
        await self._publish(self._mallory, frame, {})

    async def _publish(self, user: str, frame: bytes, changes: dict[int, bytes]) -> None:
        uri = self._vhost.uri_as(BrokerUser(user, "secret"))
        connection = await connect(uri, name="contract test, stranger")
        publisher = Publisher(await connection.channel())
        await publisher.start()
        properties = rewrite(NONE_PRESENT, changes)
        await publisher.wait(publisher.publish_many([("data", b"", properties, frame)]))
        await connection.close()

    async def purge(self) -> None:
        await rabbitmqctl(self._vhost.broker, "purge_queue", "queue", "--vhost", self._vhost.name)

    async def delete_queue(self) -> None:
        await rabbitmqctl(self._vhost.broker, "delete_queue", "queue", "--vhost", self._vhost.name)

    async def reset(self) -> None:
        self._proxy.line("line").reset()

    async def go_away(self) -> None:
        await self._proxy.close_line("line")
