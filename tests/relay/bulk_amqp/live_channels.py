"""What tests on a real broker stand on: publishers, an inbox, a message with every property."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from relay.bulk_amqp import (
    BulkAmqpError,
    Channel,
    Connection,
    Consumer,
    Delivery,
    Message,
    Publisher,
    PublishOutcome,
    content_header,
    field_table,
)

PLAIN = b"\x10\x00\x02"  # delivery mode 2
QUORUM = {"x-queue-type": "quorum"}

Connect = Callable[..., Awaitable[Connection]]


async def started_publisher(connection: Connection) -> Publisher:
    publisher = Publisher(await connection.channel())
    await publisher.start()
    return publisher


class Inbox:
    """Takes deliveries, and acks all of each read at once."""

    def __init__(self, channel: Channel, queue: str) -> None:
        self.got: list[Delivery] = []
        self.reads = 0
        self.ended: list[BulkAmqpError] = []
        self.consumer = Consumer(channel, queue, self.take, on_ended=self.ended.append)

    def take(self, deliveries: list[Delivery]) -> None:
        self.got += deliveries
        self.reads += 1
        self.consumer.ack(deliveries[-1][0])

    def messages(self) -> list[Message]:
        return [delivery[2:] for delivery in self.got]


async def publish_all(publisher: Publisher, messages: list[Message]) -> list[PublishOutcome]:
    publications = []
    for at in range(0, len(messages), 256):
        publications.append(publisher.publish_many(messages[at : at + 256], mandatory=True))
        await publisher.drain()
    return [await asyncio.wait_for(publisher.wait(p), 30) for p in publications]


def every_property() -> bytes:
    """Headers in the order of their names: quorum queues and RabbitMQ 4 sort them so."""
    table = b"".join(
        field_table.entry(name, value)
        for name, value in sorted(
            [
                (b"void", b"V"),
                (b"true", b"t\x01"),
                (b"int8", b"b\xff"),
                (b"uint8", b"B\xff"),
                (b"int16", b"s\xff\xfe"),
                (b"uint16", b"u\xff\xfe"),
                (b"int32", b"I\xff\xff\xff\xfe"),
                (b"uint32", b"i\xff\xff\xff\xfe"),
                (b"int64", field_table.long_integer(-5)),
                (b"float", b"f\x40\x48\xf5\xc3"),
                (b"double", b"d\x40\x09\x21\xfb\x54\x44\x2d\x18"),
                (b"decimal", b"D\x02\x00\x00\x01\x00"),
                (b"time", b"T\x00\x00\x00\x00\x65\x00\x00\x00"),
                (b"text", field_table.long_string("Grüße".encode())),
                (b"bytes", b"x\x00\x00\x00\x03\x00\xff\xce"),
                (b"array", b"A\x00\x00\x00\x0aVS\x00\x00\x00\x01at\x00V"),
                (b"table", b"F\x00\x00\x00\x0d\x01aF\x00\x00\x00\x06\x04deepV"),
            ]
        )
    )
    field_table.check(table)
    ch = content_header
    return ch.rewrite(
        ch.NONE_PRESENT,
        {
            ch.CONTENT_TYPE: b"application/json",
            ch.CONTENT_ENCODING: b"gzip",
            ch.DELIVERY_MODE: 1,
            ch.PRIORITY: 9,
            ch.CORRELATION_ID: b"corr",
            ch.REPLY_TO: b"reply",
            ch.EXPIRATION: b"600000",
            ch.MESSAGE_ID: b"id",
            ch.TIMESTAMP: 1714521600,
            ch.TYPE: b"type",
            ch.APP_ID: b"app",
            ch.CLUSTER_ID: b"paris",
        },
        table,
    )
