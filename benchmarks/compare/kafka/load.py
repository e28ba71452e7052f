"""Both ends of a measurement at Kafka's servers, by librdkafka's client."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaError, Message, Producer

from benchmarks.compare.kafka.config import GROUP
from isthmus.load.messages import HEAD, Bodies
from isthmus.load.sink import RunArrivals
from isthmus.load.source import RunSource

_POLL_S = 0.2
_BATCH = 1000
_JOIN_WITHIN_S = 60.0


def _settings(uri: str) -> dict[str, str | bool]:
    return {"bootstrap.servers": urlsplit(uri).netloc}


class KafkaSource(RunSource):
    """Idempotent producer, which waits for the acknowledgement of all replicas."""

    def __init__(self, uri: str, run: bytes, origin: int, topic: str, bodies: Bodies) -> None:
        super().__init__(run, origin, bodies)
        self._uri, self._topic = uri, topic
        self._producer: Producer | None = None

    async def open(self) -> None:
        """Start the producer, which connects by itself."""
        self._producer = Producer({**_settings(self._uri), "enable.idempotence": True})

    async def close(self) -> None:
        """Leave the producer to its end as an object: all it sent is confirmed by now."""
        self._producer = None

    async def confirm(self) -> None:
        """Wait until the server has answered for all messages."""
        await self._until_unanswered(0)

    async def _publish(self, times_ns: list[int]) -> None:
        assert self._producer is not None
        produce, topic, answer = self._producer.produce, self._topic, self._answer
        pack, run, origin = HEAD.pack, self._run, self._origin
        tails = self._bodies.take(len(times_ns))
        for number, (at, tail) in enumerate(zip(times_ns, tails, strict=True), self.sent):
            produce(topic, pack(run, origin, number, at) + tail, on_delivery=answer)
        self.sent += len(times_ns)
        self._producer.poll(0)
        await self._until_unanswered(self._window // self._bodies.mean_bytes)

    async def _until_unanswered(self, most: int) -> None:
        assert self._producer is not None
        loop = asyncio.get_running_loop()
        while self.unanswered > most:
            await loop.run_in_executor(None, self._producer.poll, _POLL_S)

    def _answer(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.confirmed += 1
        else:
            self.refused += 1


class KafkaSink(RunArrivals):
    """Consumer of a group, whose offsets the client commits every five seconds, its default."""

    def __init__(self, uri: str, topic: str) -> None:
        super().__init__(bytes(8))
        self._topic = topic
        self._consumer = Consumer(
            {**_settings(uri), "group.id": GROUP, "auto.offset.reset": "earliest"}
        )
        # One thread: the client may wait in it, and nothing is read by two at once.
        self._waiting = ThreadPoolExecutor(1)
        self._task: asyncio.Task[None] | None = None

    async def consume(self) -> None:
        """Join the group, and consume from now on. Raises TimeoutError."""
        assigned = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda *_: loop.call_soon_threadsafe(assigned.set),
        )
        self._task = loop.create_task(self._consume())
        async with asyncio.timeout(_JOIN_WITHIN_S):
            await assigned.wait()

    async def _consume(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                batch = await loop.run_in_executor(self._waiting, self._batch)
            except Exception as error:
                self.ended = error
                return
            if batch:
                self.count(batch)

    def _batch(self) -> list[tuple[bytes, bytes]]:
        """Wait for messages; return what has come."""
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(_BATCH - 1, 0)]
        for message in messages:
            if (error := message.error()) is not None:
                raise RuntimeError(f"Kafka's consumer: {error}")
        return [(b"", message.value()) for message in messages]
