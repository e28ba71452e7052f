"""The hot AMQP path: whole buffers in, whole buffers out. Knows nothing of the mesh.

::

    connection = await connect("amqp://user:password@host/vhost", heartbeat=10)

    channel = await connection.channel()               # rare methods: declare, bind, delete...
    await channel.declare_queue("q", durable=True)

    consumer = Consumer(channel, "q", on_deliveries)   # on_deliveries(Sequence[Delivery]), in bulk
    await consumer.start(prefetch=2000)
    consumer.ack(tag)                                  # all up to tag

    publisher = Publisher(await other_connection.channel())
    await publisher.start()
    publication = publisher.publish_many(messages, mandatory=True)
    await publisher.drain()                            # the socket's back-pressure
    outcome = await publisher.wait(publication)        # nacked, returned, unknown

    await connection.close()

A ``Delivery`` is ``(tag, redelivered, exchange, routing key, properties, body)``, a ``Message``
``(exchange, routing key, properties, body)``: names of exchanges are ``str``, the rest raw bytes,
``properties`` as on the wire, which content_header.py reads and rewrites in place. Errors are drawn
in errors.py. Consume and publish on separate connections: a blocked publisher's connection is not
read by the broker, which would not see acks sent there either.
"""

from relay.bulk_amqp.address import Address, Cluster
from relay.bulk_amqp.channel import Channel, DeclaredQueue
from relay.bulk_amqp.confirms import Publication, PublishOutcome
from relay.bulk_amqp.connection import Connection, connect
from relay.bulk_amqp.consumer import Consumer
from relay.bulk_amqp.errors import (
    AckOutOfOrder,
    AddressInvalid,
    AuthenticationFailed,
    BulkAmqpError,
    CallbackFailed,
    ChannelClosed,
    ConnectionClosed,
    ConnectionFailed,
    ConnectionLost,
    ConsumerCancelled,
    MalformedProperties,
    MessageUnsendable,
    Misuse,
    PeerSilent,
    UnexpectedFrame,
)
from relay.bulk_amqp.frame_reader import Delivery, Returned
from relay.bulk_amqp.frame_writer import Message
from relay.bulk_amqp.publisher import Publisher

__all__ = [
    "AckOutOfOrder",
    "Address",
    "AddressInvalid",
    "AuthenticationFailed",
    "BulkAmqpError",
    "CallbackFailed",
    "Channel",
    "ChannelClosed",
    "Cluster",
    "Connection",
    "ConnectionClosed",
    "ConnectionFailed",
    "ConnectionLost",
    "Consumer",
    "ConsumerCancelled",
    "DeclaredQueue",
    "Delivery",
    "MalformedProperties",
    "Message",
    "MessageUnsendable",
    "Misuse",
    "PeerSilent",
    "Publication",
    "PublishOutcome",
    "Publisher",
    "Returned",
    "UnexpectedFrame",
    "connect",
]
