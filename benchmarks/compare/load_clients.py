"""Publishers and consumers of a measurement by the scheme of their server's address."""

from __future__ import annotations

from benchmarks.compare.nats.load import NatsSink, NatsSource
from isthmus.load.messages import Bodies
from isthmus.load.sink import LoadSink, RunArrivals
from isthmus.load.source import LoadSource, RunSource


def source(
    uri: str, run: bytes, origin: int, exchange: str, bodies: Bodies, key: bytes
) -> RunSource:
    """Return a publisher to an exchange, a stream or a topic."""
    scheme = uri.partition(":")[0]
    if scheme == "nats":
        return NatsSource(uri, run, origin, bodies, key)
    if scheme == "kafka":
        # Its client is only installed where Kafka is measured.
        from benchmarks.compare.kafka.load import KafkaSource

        return KafkaSource(uri, run, origin, exchange, bodies)
    return LoadSource(uri, run, origin, exchange, bodies, key=key)


async def consuming(uri: str, queue: str) -> RunArrivals:
    """Consume a queue, a stream or a topic from now on."""
    scheme = uri.partition(":")[0]
    if scheme == "nats":
        nats = NatsSink(uri)
        await nats.consume()
        return nats
    if scheme == "kafka":
        from benchmarks.compare.kafka.load import KafkaSink

        kafka = KafkaSink(uri, queue)
        await kafka.consume()
        return kafka
    rabbit = LoadSink(uri, bytes(8), queue)
    await rabbit.open()
    await rabbit.consume()
    return rabbit
