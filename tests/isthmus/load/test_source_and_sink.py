"""Sent and taken by a real broker, every message is accounted for."""

from __future__ import annotations

import os

import pytest

from isthmus.load.messages import HalfRandom
from isthmus.load.sink import LoadSink
from isthmus.load.source import LoadSource
from tests.conftest import VhostFactory
from tests.waiting import until

pytestmark = [pytest.mark.live, pytest.mark.any_release]


async def test_every_message_is_accounted_for(vhost_factory: VhostFactory) -> None:
    uri = (await vhost_factory("load")).amqp_uri
    run = os.urandom(8)
    sink = LoadSink(uri, run, "load")
    channel = await (await sink.open()).channel()
    await channel.declare_queue("load", durable=True, arguments={"x-queue-type": "quorum"})
    await channel.bind_queue("load", "amq.topic", "#")
    await sink.consume()
    source = LoadSource(uri, run, 3, "amq.topic", HalfRandom(256))
    stranger = LoadSource(uri, os.urandom(8), 3, "amq.topic", HalfRandom(64))
    try:
        await source.open()
        await stranger.open()
        await source.publish(1000)
        await stranger.publish(10)
        await source.publish_at(2000, 100)
        await source.publish_at(2000, 100, burst=32)
        assert (source.sent, source.confirmed, source.refused) == (1200, 1200, 0)
        await until(lambda: sink.delivered + sink.strangers == 1210, "all have come", 30)
        arrivals = sink.by_origin[3]
        assert (arrivals.delivered, arrivals.duplicates, arrivals.out_of_order) == (1200, 0, 0)
        assert arrivals.missing(1200) == 0
        assert sink.strangers == 10
        assert sink.latencies[3].count == 1200
        assert 0 < sink.latencies[3].percentile_ms(50) <= sink.latencies[3].longest_ms
        assert sink.ended is None
    finally:
        for end in (source, stranger, sink):
            await end.close()


async def test_refused_messages_are_known_by_number(vhost_factory: VhostFactory) -> None:
    uri = (await vhost_factory("load")).amqp_uri
    run = os.urandom(8)
    sink = LoadSink(uri, run, "short")
    channel = await (await sink.open()).channel()
    full = {"x-max-length": 5, "x-overflow": "reject-publish"}
    await channel.declare_queue("short", durable=True, arguments=full)
    await channel.bind_queue("short", "amq.topic", "#")
    source = LoadSource(uri, run, 0, "amq.topic", HalfRandom(64))
    try:
        await source.open()
        await source.publish(200)
        assert source.confirmed + source.refused == 200
        assert source.refused == len(source.refused_numbers) > 0
        assert source.unanswered == 0
        await sink.consume()
        await until(lambda: sink.delivered >= source.confirmed, "those that it took come", 30)
        assert sink.by_origin[0].missing(200, source.refused_numbers) == 0
        assert sink.by_origin[0].missing(200) == 200 - sink.delivered
    finally:
        for end in (source, sink):
            await end.close()


async def test_a_source_waits_while_there_is_no_room(vhost_factory: VhostFactory) -> None:
    uri = (await vhost_factory("load")).amqp_uri
    source = LoadSource(uri, os.urandom(8), 0, "amq.topic", HalfRandom(64))
    asked: list[int] = []

    def has_room() -> bool:
        asked.append(source.sent)
        return len(asked) % 3 == 0

    try:
        await source.open()
        await source.publish(600, has_room=has_room)
        assert asked == [0, 0, 0, 256, 256, 256, 512, 512, 512]
        assert source.confirmed == 600
    finally:
        await source.close()
