"""One suite over both local exchanges: a real broker's and the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest

from isthmus.brokers.config import BrokerUser
from relay.bulk_amqp import connect
from relay.bulk_amqp.content_header import NONE_PRESENT, rewrite
from relay.bulk_amqp.field_table import entry, long_string
from relay.delivery.local_exchange import (
    Answer,
    DelivererLockHeld,
    ExchangeMissing,
    ExchangeRefused,
    LocalClosed,
    LocalExchange,
    Outgoing,
)
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.delivery.rabbit_exchange import RabbitExchange, open_exchange
from tests.conftest import Eventually
from tests.live_brokers import Vhost


def filled(size: int) -> bytes:
    """Properties of that many bytes."""
    name = b"big"
    empty = len(rewrite(NONE_PRESENT, {}, entry(name, long_string(b""))))
    return rewrite(NONE_PRESENT, {}, entry(name, long_string(bytes(size - empty))))


MESSAGE = Outgoing(b"key", NONE_PRESENT, b"body")


@dataclass
class Site:
    """A broker with exchange `orders`, queue `orders.queue` on it, `full` on exchange `both`
    beside `healthy`, exchange `nowhere` without a queue, and `foreign`, which is another's.
    """

    open: Callable[[], Awaitable[LocalExchange]]
    count: Callable[[str], Awaitable[int]]
    break_off: Callable[[LocalExchange], Awaitable[None]]
    cut: Callable[[LocalExchange], Awaitable[None]]
    """Lose the connection at once, with what is on its way."""


@pytest.fixture
async def rabbit_site(vhost: Vhost) -> AsyncIterator[Site]:
    connection = await connect(vhost.amqp_uri, name="test")
    channel = await connection.channel()
    for exchange in ("orders", "both", "nowhere", "foreign"):
        await channel.declare_exchange(exchange, "topic")
    await channel.declare_queue("orders.queue")
    await channel.declare_queue("healthy")
    await channel.declare_queue(
        "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
    )
    await channel.bind_queue("orders.queue", "orders", "#")
    await channel.bind_queue("healthy", "both", "#")
    await channel.bind_queue("full", "both", "#")

    user = await vhost.add_user(
        BrokerUser(f"{vhost.user}.deliverer", "secret", write="^(?!foreign$)")
    )

    async def count(queue: str) -> int:
        return (await channel.declare_queue(queue, passive=True)).message_count

    async def open_rabbit() -> LocalExchange:
        return await open_exchange(vhost.uri_as(user), lock="lock", name="test deliverer")

    async def break_off(exchange: LocalExchange) -> None:
        await exchange.close()

    async def cut(exchange: LocalExchange) -> None:
        assert isinstance(exchange, RabbitExchange)
        exchange._connection.abort("cut")

    yield Site(open_rabbit, count, break_off, cut)
    await connection.close()


@pytest.fixture
async def memory_site() -> Site:
    broker = MemoryBroker()
    broker.declare("orders", "orders.queue")
    broker.declare("both", "healthy", "full")
    broker.declare("nowhere")
    broker.declare("foreign")
    broker.closed.add("foreign")
    broker.capacity["full"] = 0
    holder: list[MemoryExchange] = []

    async def open_memory() -> LocalExchange:
        if holder and not holder[-1].closed.done():
            raise DelivererLockHeld("lock")
        holder.append(MemoryExchange(broker))
        return holder[-1]

    async def count(queue: str) -> int:
        return len(broker.messages[queue])

    async def break_off(exchange: LocalExchange) -> None:
        await exchange.close()

    async def cut(exchange: LocalExchange) -> None:
        assert isinstance(exchange, MemoryExchange)
        exchange.break_off("cut")

    return Site(open_memory, count, break_off, cut)


@pytest.fixture(
    params=["memory_site", pytest.param("rabbit_site", marks=pytest.mark.live)],
    ids=["memory", "rabbit"],
)
def site(request: pytest.FixtureRequest) -> Site:
    made: Site = request.getfixturevalue(request.param)
    return made


async def test_every_message_gets_its_answer(site: Site) -> None:
    exchange = await site.open()
    assert (
        await exchange.publish("orders", [MESSAGE] * 300, timeout_s=10) == [Answer.CONFIRMED] * 300
    )
    assert await site.count("orders.queue") == 300
    await exchange.close()


async def test_an_exchange_is_answered_once_nothing_waits_for_an_answer(site: Site) -> None:
    exchange = await site.open()
    assert exchange.is_answered
    sent: list[bool] = []
    await exchange.publish(
        "both", [MESSAGE] * 3, timeout_s=10, on_sent=lambda _: sent.append(exchange.is_answered)
    )
    assert sent == [False]
    assert exchange.is_answered
    await exchange.close()


async def test_an_exchange_whose_answers_never_came_is_not_answered(site: Site) -> None:
    exchange = await site.open()
    cut: list[asyncio.Task[None]] = []
    answers = await exchange.publish(
        "orders",
        [MESSAGE] * 300,
        timeout_s=10,
        on_sent=lambda _: cut.append(asyncio.create_task(site.cut(exchange))),
    )
    await asyncio.gather(*cut)
    assert Answer.UNKNOWN in answers
    assert not exchange.is_answered


async def test_who_asks_gets_the_channel_when_all_are_sent_and_before_any_answer(
    site: Site,
) -> None:
    exchange = await site.open()
    told: list[object] = []
    publishing = asyncio.create_task(
        exchange.publish("orders", [MESSAGE] * 300, timeout_s=10, on_sent=told.append)
    )
    publishing.add_done_callback(lambda _: told.append("answered"))
    await publishing
    with pytest.raises(ExchangeMissing):
        await exchange.publish("missing", [MESSAGE], timeout_s=10, on_sent=told.append)
    assert len(told) == 2
    assert told[1] == "answered"
    await exchange.close()


async def test_the_next_messages_go_behind_those_that_wait_for_answers_on_their_channel(
    site: Site,
) -> None:
    exchange = await site.open()
    channels: list[object] = []

    def publish_next(count: int, channel: object) -> Coroutine[Any, Any, list[Answer]] | None:
        messages = [MESSAGE] * count
        return exchange.publish_next("orders", messages, channel=channel, timeout_s=10)

    async def publish(count: int) -> list[Answer]:
        messages = [MESSAGE] * count
        return await exchange.publish("orders", messages, timeout_s=10, on_sent=channels.append)

    first = asyncio.create_task(publish(100))
    while not channels:
        await asyncio.sleep(0)
    assert publish_next(1, channels[0]) is None, "no answer yet: the user may not write there"
    assert await first == [Answer.CONFIRMED] * 100
    assert publish_next(1, object()) is None
    second = publish_next(50, channels[0])
    third = publish_next(50, channels[0])
    assert second is not None
    assert third is not None
    assert await third == await second == [Answer.CONFIRMED] * 50
    await site.break_off(exchange)
    assert publish_next(1, channels[0]) is None
    assert await site.count("orders.queue") == 200


async def test_what_no_queue_wants_is_unrouted(site: Site) -> None:
    exchange = await site.open()
    answers = await exchange.publish("nowhere", [MESSAGE, MESSAGE], timeout_s=10)
    assert answers == [Answer.UNROUTED] * 2
    await exchange.close()


async def test_a_full_queue_refuses_though_the_healthy_one_has_it(site: Site) -> None:
    exchange = await site.open()
    assert await exchange.publish("both", [MESSAGE], timeout_s=10) == [Answer.REFUSED]
    assert await site.count("healthy") == 1
    await exchange.close()


async def test_where_the_user_may_not_write_nothing_is_sent_and_all_else_goes_on(
    site: Site,
) -> None:
    exchange = await site.open()
    assert await exchange.publish("orders", [MESSAGE], timeout_s=10) == [Answer.CONFIRMED]
    for _ in range(2):
        with pytest.raises(ExchangeRefused, match="'foreign': `isthmus apply`"):
            await exchange.publish("foreign", [MESSAGE] * 2, timeout_s=10)
    assert await exchange.publish("orders", [MESSAGE], timeout_s=10) == [Answer.CONFIRMED]
    assert await site.count("orders.queue") == 2
    await exchange.close()


async def test_what_can_never_be_sent_is_told_from_the_rest(site: Site) -> None:
    exchange = await site.open()
    fits = MESSAGE._replace(properties=filled(131_052))
    answers = await exchange.publish(
        "orders", [MESSAGE, fits._replace(properties=filled(131_053)), fits], timeout_s=10
    )
    assert answers == [Answer.CONFIRMED, Answer.UNSENDABLE, Answer.CONFIRMED]
    beyond = [fits._replace(properties=filled(200_000))] * 2
    assert await exchange.publish("orders", beyond, timeout_s=10) == [Answer.UNSENDABLE] * 2
    assert await site.count("orders.queue") == 2
    await exchange.close()


async def test_a_missing_exchange_is_told_before_anything_is_sent(site: Site) -> None:
    exchange = await site.open()
    with pytest.raises(ExchangeMissing, match="isthmus apply"):
        await exchange.publish("missing", [MESSAGE], timeout_s=10)
    assert await exchange.publish("orders", [MESSAGE], timeout_s=10) == [Answer.CONFIRMED]
    await exchange.close()


async def test_a_second_node_does_not_get_the_lock(site: Site, eventually: Eventually) -> None:
    exchange = await site.open()
    with pytest.raises(DelivererLockHeld, match="only one node"):
        await site.open()
    await exchange.close()

    async def is_free() -> bool:
        try:
            await (await site.open()).close()
        except DelivererLockHeld:
            return False  # 4.3 may answer a close before all its processes see the queue gone
        return True

    await eventually(is_free, "the lock of a connection that was closed")


async def test_after_the_connection_nothing_is_sent(site: Site) -> None:
    exchange = await site.open()
    await site.break_off(exchange)
    async with asyncio.timeout(10):
        await asyncio.shield(exchange.closed)
    with pytest.raises(LocalClosed):
        await exchange.publish("orders", [MESSAGE], timeout_s=10)
