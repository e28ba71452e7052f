"""Consuming from a real broker: limits, refusals, pauses and ends."""

from __future__ import annotations

import pytest

from relay.bulk_amqp import Channel, Consumer, ConsumerCancelled, Delivery
from tests.conftest import Eventually
from tests.relay.bulk_amqp.live_channels import (
    PLAIN,
    QUORUM,
    Connect,
    Inbox,
    publish_all,
    started_publisher,
)


@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
async def test_a_consumer_hears_that_its_queue_was_deleted(
    connected: Connect, eventually: Eventually, arguments: dict[str, str]
) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue("doomed", durable=True, arguments=arguments)
    inbox = Inbox(channel, "doomed")
    await inbox.consumer.start()
    await (await (await connected()).channel()).delete_queue("doomed")
    await eventually(lambda: inbox.ended, "the end of the consumer")
    assert isinstance(inbox.consumer.ended, ConsumerCancelled)
    assert inbox.ended == [inbox.consumer.ended]
    assert channel.close_reason is None
    assert connection.close_reason is None


async def test_two_thousand_unsettled_and_not_one_more(
    connected: Connect, eventually: Eventually
) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue("q", durable=True, arguments=QUORUM)
    publisher = await started_publisher(await connected())
    await publish_all(publisher, [("", b"q", PLAIN, b"%d" % n) for n in range(6000)])
    got: list[Delivery] = []
    consumer = Consumer(channel, "q", got.extend)
    await consumer.start(prefetch=2000)
    await eventually(lambda: len(got) >= 2000, "the first 2000")
    assert (await channel.declare_queue("q", passive=True)).message_count == 4000
    assert len(got) == 2000
    while len(got) < 6000 or consumer.settled_up_to < 6000:
        before = consumer.settled_up_to
        consumer.ack(min(before + 700, got[-1][0]))
        await eventually(
            lambda before=before: len(got) >= min(6000, before + 2000), lambda: f"{len(got)}"
        )
    assert [delivery[5] for delivery in got] == [b"%d" % n for n in range(6000)]
    assert (await channel.declare_queue("q", passive=True)).message_count == 0


async def test_refused_deliveries_come_again_flagged_or_go_to_the_dead_letters(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("dead")
    await channel.declare_queue(
        "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    )
    got: list[Delivery] = []
    consumer = Consumer(channel, "q", got.extend)
    await consumer.start()
    publisher = await started_publisher(await connected())
    await publish_all(publisher, [("", b"q", PLAIN, b"%d" % n) for n in range(4)])
    await eventually(lambda: len(got) == 4, "four deliveries")
    consumer.nack(2, requeue=True)
    consumer.nack(3, requeue=False)
    await eventually(lambda: len(got) == 5, "the second one again")
    assert (got[4][0], got[4][1], got[4][5]) == (5, True, b"1")
    consumer.nack(5, requeue=False, multiple=True)
    await eventually(
        lambda: _messages(channel, "dead", 4), "all four in the dead letters", deadline_s=10
    )


async def _messages(channel: Channel, queue: str, expected: int) -> bool:
    return (await channel.declare_queue(queue, passive=True)).message_count == expected


async def test_a_paused_consumer_reads_nothing_until_it_resumes(
    connected: Connect, eventually: Eventually
) -> None:
    channel = await (await connected()).channel()
    await channel.declare_queue("q")
    publisher = await started_publisher(await connected())
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    await publish_all(publisher, [("", b"q", PLAIN, b"first")])
    await eventually(lambda: len(inbox.got) == 1, "the first message")
    inbox.consumer.pause()
    inbox.consumer.pause()
    await publish_all(publisher, [("", b"q", PLAIN, b"second")])
    await publish_all(publisher, [("", b"q", PLAIN, b"third")])
    assert len(inbox.got) == 1
    inbox.consumer.resume()
    await eventually(lambda: len(inbox.got) == 3, "the others")
