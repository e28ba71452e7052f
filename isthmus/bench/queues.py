"""The queue that a measurement listens at at one site: a name of its own, gone at its end."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum

from federation.brokers.addresses import AmqpAddress
from federation.mesh import Exchange
from relay.bulk_amqp import BulkAmqpError, Channel, Cluster, connect

QUEUE_PREFIX = "isthmus-bench."
"""No name of the mesh's own, which applications may not use."""
EXPIRES_MS = 120_000
"""A queue that nobody listens at any more goes by itself: what a killed measurement leaves there
fills no disk.
"""


class QueueType(StrEnum):
    """Of the queues that are listened at."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class BenchQueue:
    """`address` is the application's, at the site's own broker."""

    site: str
    address: AmqpAddress
    name: str
    type: QueueType

    async def declare(self, channel: Channel, exchange: Exchange, key: str) -> None:
        """Durable, since the mesh's messages are persistent: what an application would have.

        Nothing limits its length, which would lose messages. Raises BulkAmqpError.
        """
        await channel.declare_queue(
            self.name,
            durable=True,
            arguments={"x-queue-type": self.type.value, "x-expires": EXPIRES_MS},
        )
        bound = key if exchange.type in ("topic", "direct") else ""
        await channel.bind_queue(self.name, exchange.delivers_to, bound)

    async def delete(self) -> str:
        """Why it could not be; empty if it is gone. Over a connection of its own: the one that it
        was listened at over may have ended.
        """
        try:
            connection = await connect(
                Cluster.of(self.address.uri, self.address.endpoints),
                name="isthmus bench",
                ssl_context=self.address.ssl_context,
            )
        except BulkAmqpError as error:
            return str(error)
        try:
            channel = await connection.channel()
            await channel.delete_queue(self.name)
        except BulkAmqpError as error:
            return str(error)
        finally:
            with contextlib.suppress(BulkAmqpError):
                await connection.close()
        return ""


def queue_name(run: bytes, exchange: Exchange) -> str:
    """Of one measurement, at every site."""
    return f"{QUEUE_PREFIX}{run.hex()}.{exchange.name}"
