"""Probe of a broker's hash: that known keys go to the partitions to which other releases send them.

All sites of a mesh must agree on a key's partition, and each broker computes it by itself. The
releases 3.10, 4.0 and 4.3 agree; a broker that did not would part the copies of an identity.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from hashlib import blake2b

from aio_pika.exceptions import AMQPException
from aiormq.abc import AbstractChannel, DeliveredMessage

from federation.brokers.addresses import AmqpAddress
from federation.brokers.amqp_client import amqp_client
from federation.mesh import Mesh
from federation.partitions import HASH_EXCHANGE, MOST_PARTITIONS

PROBED_KEYS = 256
PROBE_WITHIN_S = 30.0
KNOWN_HASH = "d736bbdd4a0a1fb7"
"""Digest of the partitions of all probed keys, as RabbitMQ 3.10.8 and 4.3.6 computed them."""

ENABLE_HASH = (
    "rabbitmq-plugins enable rabbitmq_sharding, on each of its nodes; then apply again. RabbitMQ"
    " 4.3 and later have them without a plugin"
)
NO_HASH = f"the broker has no exchanges of type {HASH_EXCHANGE}"
OTHER_HASH = "the broker's hash sends keys to other partitions than the brokers of other sites do"
MEND_HASH = (
    "take `partitions` out of the exchanges that leave this site, or use another release of "
    "RabbitMQ here; and tell the maintainers of Isthmus its version"
)


def has_partitions(mesh: Mesh, site: str) -> bool:
    """Return True if the broker of the site spreads messages over partitions."""
    return any(e.partitions > 1 and e.leaves(site) for e in mesh.exchanges.values())


async def probe_hash(address: AmqpAddress, prefix: str) -> str:
    """Return the digest of the partitions to which the broker sends known keys: KNOWN_HASH, unless
    its hash is another. The address is an administrator's; what is declared for the probe begins
    with `prefix` and is gone afterwards.

    Raises AMQPException, OSError, TimeoutError.
    """
    async with asyncio.timeout(PROBE_WITHIN_S):
        connection = await amqp_client(address, "isthmus hash probe", PROBE_WITHIN_S)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            partitions = await _partitions(await channel.get_underlay_channel(), prefix)
    return blake2b(bytes(partitions), digest_size=8).hexdigest()


def lacks_hash(error: AMQPException | OSError) -> bool:
    """Return True if the broker refused since it has no exchanges of the type HASH_EXCHANGE."""
    return HASH_EXCHANGE in str(error)


async def _partitions(channel: AbstractChannel, prefix: str) -> list[int]:
    """Return the partition of each probed key."""
    name = f"{prefix}probe.{secrets.token_hex(4)}"
    # The broker counts partitions in the order of the queues' names.
    queues = [f"{name}.{partition:02}" for partition in range(MOST_PARTITIONS)]
    found: dict[int, int] = {}
    all_came = asyncio.Event()

    async def note(partition: int, message: DeliveredMessage) -> None:
        found[int(message.body)] = partition
        if len(found) == PROBED_KEYS:
            all_came.set()

    await channel.exchange_declare(name, exchange_type=HASH_EXCHANGE, auto_delete=True)
    try:
        for partition, queue in enumerate(queues):
            await channel.queue_declare(queue, exclusive=True, auto_delete=True)
            await channel.queue_bind(queue, name)
            await channel.basic_consume(queue, partial(note, partition), no_ack=True)
        publishing = [
            channel.basic_publish(b"%d" % n, exchange=name, routing_key=f"isthmus.{n}")
            for n in range(PROBED_KEYS)
        ]
        await asyncio.gather(*publishing)
        await all_came.wait()
    finally:
        # Its queues end with the connection.
        await channel.exchange_delete(name)
    return [found[number] for number in range(PROBED_KEYS)]
