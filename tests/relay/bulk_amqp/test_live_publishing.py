"""Publishing to a real broker: returns, nacks, and what closes the channel alone."""

from __future__ import annotations

import asyncio

import pytest

from relay.bulk_amqp import (
    ChannelClosed,
    Message,
    Publisher,
    PublishOutcome,
    Returned,
    content_header,
    field_table,
)
from tests.relay.bulk_amqp.live_channels import PLAIN, Connect, every_property, started_publisher


async def test_returns_are_matched_among_identical_neighbours(connected: Connect) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_exchange("orders", "direct")
    await channel.declare_queue("inbox")
    await channel.bind_queue("inbox", "orders", "good")
    returned: list[tuple[int, Returned]] = []
    publisher = Publisher(
        await connection.channel(), on_returned=lambda n, what: returned.append((n, what))
    )
    await publisher.start()
    good: Message = ("orders", b"good", every_property(), b"body")
    lost: Message = ("orders", b"nobody", every_property(), b"body")
    big: Message = ("orders", b"nobody", every_property(), bytes(300_000))
    publication = publisher.publish_many(
        [good, lost, lost, good, good, lost, big, good], mandatory=True
    )
    assert await asyncio.wait_for(publisher.wait(publication), 10) == PublishOutcome(
        1, 8, returned=(2, 3, 6, 7)
    )
    assert [n for n, _ in returned] == [2, 3, 6, 7]
    assert [(what.code, what.routing_key, what.body) for _, what in returned] == [
        (312, b"nobody", message[3]) for message in (lost, lost, lost, big)
    ]
    assert (await channel.purge_queue("inbox")) == 4
    again = publisher.publish_many([lost, good], mandatory=False)
    assert (await asyncio.wait_for(publisher.wait(again), 10)).all_routed


async def test_a_return_whose_bcc_header_the_broker_cut_is_still_matched(
    connected: Connect,
) -> None:
    publisher = await started_publisher(await connected())
    bcc = field_table.entry(b"BCC", b"A\x00\x00\x00\x07S\x00\x00\x00\x02no")
    block = content_header.rewrite(PLAIN, {}, bcc)
    publication = publisher.publish_many(
        [("amq.direct", b"a", block, b"1"), ("amq.direct", b"b", block, b"2")], mandatory=True
    )
    outcome = await asyncio.wait_for(publisher.wait(publication), 10)
    assert outcome == PublishOutcome(1, 2, returned=(1, 2))


async def test_a_full_queue_that_rejects_is_a_nack_for_just_those(connected: Connect) -> None:
    connection = await connected()
    channel = await connection.channel()
    await channel.declare_queue(
        "full", arguments={"x-max-length": 5, "x-overflow": "reject-publish"}
    )
    await channel.declare_queue("free")
    publisher = await started_publisher(connection)
    messages: list[Message] = [
        ("", b"full" if n % 2 else b"free", PLAIN, b"%d" % n) for n in range(1, 201)
    ]
    outcomes = [
        await asyncio.wait_for(publisher.wait(publisher.publish_many([message])), 10)
        for message in messages
    ]
    nacked = {n for outcome in outcomes for n in outcome.nacked}
    assert nacked == {n for n in range(1, 201) if n % 2 and n > 10}
    assert await channel.purge_queue("full") == 5
    assert await channel.purge_queue("free") == 100


async def test_publishing_to_an_unknown_exchange_closes_that_channel_only(
    connected: Connect,
) -> None:
    connection = await connected()
    other = await connection.channel()
    await other.declare_queue("q")
    publisher = await started_publisher(connection)
    publications = [publisher.publish_many([("gone", b"k", PLAIN, b"x")] * 3)]
    reason = await asyncio.wait_for(publisher.channel.wait_closed(), 10)
    assert isinstance(reason, ChannelClosed)
    assert reason.code == 404
    assert "gone" in reason.text
    assert publications[0].outcome == PublishOutcome(1, 3, unknown=(1, 2, 3))
    with pytest.raises(ChannelClosed, match="gone"):
        publisher.publish_many([("", b"q", PLAIN, b"x")])
    assert connection.close_reason is None
    again = await started_publisher(connection)
    outcome = await asyncio.wait_for(
        again.wait(again.publish_many([("", b"q", PLAIN, b"x")], mandatory=True)), 10
    )
    assert outcome.all_routed
    assert await other.purge_queue("q") == 1


async def test_a_foreign_user_id_closes_the_channel_only(connected: Connect) -> None:
    connection = await connected()
    publisher = await started_publisher(connection)
    block = content_header.rewrite(PLAIN, {content_header.USER_ID: b"someone-else"})
    publisher.publish_many([("", b"q", block, b"x")])
    reason = await asyncio.wait_for(publisher.channel.wait_closed(), 10)
    assert isinstance(reason, ChannelClosed)
    assert reason.code == 406
    assert connection.close_reason is None
