"""CPU of this process for a message: the bulk path, and aio-pika beside it.

    .venv/bin/python -m benchmarks.bulk_amqp [--uri AMQP_URI] [--messages 100000] [--rounds 5]

Without ``--uri`` a private broker is started on loopback and ended afterwards. A round publishes
all messages with confirms (256 at a time, at most 4 MiB unconfirmed), then consumes and acks them,
on a durable classic and on a quorum queue. What is printed is user and system time of this process
(the broker's is not in it), in microseconds a message, as the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import aio_pika
import uvloop

from isthmus.brokers.local_brokers import (
    BrokerSpec,
    BrokerUser,
    LocalBroker,
    find_installation,
    free_ports,
)
from relay.bulk_amqp import Consumer, Delivery, Message, Publisher, connect

GROUP = 256
WINDOW_BYTES = 4 << 20
PREFETCH = 2000
PROPERTIES = b"\x10\x80\x02\x24" + b"0" * 36  # delivery mode 2, a message ID like a UUID
KINDS = {"classic": {}, "quorum": {"x-queue-type": "quorum"}}

Measure = Callable[[str, str, int, int], Awaitable[float]]


class Stopwatch:
    """Microseconds of this process's CPU a message."""

    def __init__(self) -> None:
        self._begun = time.process_time()

    def per(self, messages: int) -> float:
        return (time.process_time() - self._begun) / messages * 1e6


async def bulk_publish(uri: str, queue: str, messages: int, size: int) -> float:
    connection = await connect(uri)
    publisher = Publisher(await connection.channel())
    await publisher.start()
    body = bytes(size)
    group: list[Message] = [("", queue.encode(), PROPERTIES, body) for _ in range(GROUP)]
    watch = Stopwatch()
    under_way = []
    for done in range(0, messages, GROUP):
        under_way.append(publisher.publish_many(group[: messages - done]))
        await publisher.drain()
        while publisher.unconfirmed_bytes > WINDOW_BYTES:
            assert (await publisher.wait(under_way.pop(0))).all_routed
    for publication in under_way:
        assert (await publisher.wait(publication)).all_routed
    cost = watch.per(messages)
    await connection.close()
    return cost


async def bulk_consume(uri: str, queue: str, messages: int, size: int) -> float:
    connection = await connect(uri)
    finished = asyncio.Event()
    seen = settled = 0

    def on_deliveries(deliveries: list[Delivery]) -> None:
        nonlocal seen, settled
        seen += len(deliveries)
        if seen - settled >= GROUP or seen == messages:
            consumer.ack(deliveries[-1][0])
            settled = seen
        if seen == messages:
            finished.set()

    consumer = Consumer(await connection.channel(), queue, on_deliveries)
    watch = Stopwatch()
    await consumer.start(prefetch=PREFETCH)
    await finished.wait()
    cost = watch.per(messages)
    await connection.close()
    return cost


async def aio_pika_publish(uri: str, queue: str, messages: int, size: int) -> float:
    connection = await aio_pika.connect(uri)
    exchange = (await connection.channel()).default_exchange
    body = bytes(size)
    watch = Stopwatch()
    for done in range(0, messages, GROUP):
        await asyncio.gather(
            *(
                exchange.publish(
                    aio_pika.Message(body, delivery_mode=2, message_id="0" * 36),
                    queue,
                    mandatory=False,
                )
                for _ in range(min(GROUP, messages - done))
            )
        )
    cost = watch.per(messages)
    await connection.close()
    return cost


async def aio_pika_consume(uri: str, queue: str, messages: int, size: int) -> float:
    connection = await aio_pika.connect(uri)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=PREFETCH)
    finished = asyncio.Event()
    seen = 0

    async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        nonlocal seen
        seen += 1
        if seen % GROUP == 0 or seen == messages:
            await message.ack(multiple=True)
        if seen == messages:
            finished.set()

    watch = Stopwatch()
    await (await channel.get_queue(queue)).consume(on_message)
    await finished.wait()
    cost = watch.per(messages)
    await connection.close()
    return cost


async def measure(uri: str, messages: int, rounds: int, size: int) -> None:
    pairs: dict[str, tuple[Measure, Measure]] = {
        "bulk": (bulk_publish, bulk_consume),
        "aio-pika": (aio_pika_publish, aio_pika_consume),
    }
    admin = await connect(uri)
    channel = await admin.channel()
    print(f"{messages} messages of {size} bytes, median of {rounds} rounds, us CPU a message")
    print(f"{'queue':8} {'':18} {'bulk':>8} {'aio-pika':>9} {'ratio':>6}")
    for kind, arguments in KINDS.items():
        queue = f"bench.bulk.{kind}"
        await channel.declare_queue(queue, durable=True, arguments=arguments)
        costs: dict[str, tuple[float, float]] = {}
        for name, (publish, consume) in pairs.items():
            # The slow one gets fewer messages: its cost a message does not depend on their number.
            count = messages if name == "bulk" else max(messages // 5, GROUP)
            each: list[tuple[float, float]] = []
            for _ in range(rounds):
                await channel.purge_queue(queue)
                published = await publish(uri, queue, count, size)
                each.append((published, await consume(uri, queue, count, size)))
            costs[name] = (
                statistics.median(cost for cost, _ in each),
                statistics.median(cost for _, cost in each),
            )
        for index, what in enumerate(("publish + confirm", "consume + ack")):
            ours, theirs = costs["bulk"][index], costs["aio-pika"][index]
            print(f"{kind:8} {what:18} {ours:8.2f} {theirs:9.1f} {theirs / ours:5.0f}x")
        await channel.delete_queue(queue)
    await admin.close()


async def main(uri: str | None, messages: int, rounds: int, size: int) -> None:
    with nullcontext() if uri else tempfile.TemporaryDirectory() as folder:
        if uri:
            await measure(uri, messages, rounds, size)
            return
        amqp, stream, management, dist, epmd = free_ports(5)
        user = BrokerUser("bench", "bench")
        spec = BrokerSpec(
            "bench", Path(str(folder)), amqp, stream, management, dist, epmd, users=(user,)
        )
        broker = LocalBroker(spec, find_installation(None), die_with_parent=True)
        await broker.start()
        try:
            await measure(spec.amqp_uri(user, "/"), messages, rounds, size)
        finally:
            await broker.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--uri")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.uri, arguments.messages, arguments.rounds, arguments.size))
