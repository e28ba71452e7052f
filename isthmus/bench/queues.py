"""Queue of a measurement at one site: named for the measurement, deleted at the end."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum

from federation.brokers.addresses import AmqpAddress
from federation.mesh import Exchange
from relay.bulk_amqp import BulkAmqpError, Channel, Cluster, connect

QUEUE_PREFIX = "isthmus-bench."
"""Prefix apart from the mesh's own names, which applications may not use."""
EXPIRES_MS = 120_000
"""Expiry (ms) of an unused queue: what a killed measurement leaves fills no disk."""


class QueueType(StrEnum):
    """Type of the measurement's queues."""

    QUORUM = "quorum"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class BenchQueue:
    """Queue at the site's own broker; `address` is the application's."""

    site: str
    address: AmqpAddress
    name: str
    type: QueueType

    async def declare(self, channel: Channel, exchange: Exchange, key: str) -> None:
        """Declare and bind a durable queue without length limit, like an application's. Raises
        BulkAmqpError.

        The mesh's messages are persistent; a length limit would lose some.
        """
        await channel.declare_queue(
            self.name,
            durable=True,
            arguments={"x-queue-type": self.type.value, "x-expires": EXPIRES_MS},
        )
        bound = key if exchange.type in ("topic", "direct") else ""
        await channel.bind_queue(self.name, exchange.delivers_to, bound)

    async def delete(self) -> str:
        """Delete the queue over a new connection, since the consuming one may have ended; return
        the reason of a failure, or an empty text.
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
    """Return the queue's name, alike at every site."""
    return f"{QUEUE_PREFIX}{run.hex()}.{exchange.name}"
