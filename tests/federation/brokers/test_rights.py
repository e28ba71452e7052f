"""What the users that apply makes may do at a real broker, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel as Channel
from aio_pika.exceptions import AMQPException

from relay.delivery.local_exchange import LocalClosed
from relay.log.site_log import LogRefused
from relay.node.brokers import RabbitBrokers
from relay.packing.egress import EgressRefused
from tests.federation.live_site import Site, publish


async def test_a_link_user_can_write_its_data_and_read_its_acks(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    link = next(one for one in paris.mesh.links_to("paris") if one.sender == "tokyo")
    address = paris.book.link_end(link, "tokyo")
    assert address.user == names.link_user("tokyo")
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel(on_return_raises=False)
        acks = await channel.declare_queue(names.sender_queue(link), exclusive=True)
        await acks.bind(names.link_acks(link))
        data = await channel.get_exchange(names.link_data(link), ensure=False)
        message = aio_pika.Message(b"batch", user_id=address.user)
        assert await data.publish(message, "") is not None


async def test_a_link_user_can_do_nothing_else(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    mine = next(one for one in paris.mesh.links_to("paris") if one.sender == "tokyo")
    other = next(one for one in paris.mesh.links_to("paris") if one.sender == "sydney")
    connection = await aio_pika.connect(paris.book.link_end(mine, "tokyo").uri)

    async def publish_to(channel: Channel, exchange: str, user: str | None = None) -> None:
        target = await channel.get_exchange(exchange, ensure=False)
        await target.publish(aio_pika.Message(b"", user_id=user), names.egress("orders"))

    async def bind_to(channel: Channel, exchange: str) -> None:
        queue = await channel.declare_queue(names.sender_queue(mine), exclusive=True)
        await queue.bind(exchange)

    async def read(channel: Channel, queue: str) -> None:
        await (await channel.get_queue(queue, ensure=False)).get(fail=False)

    attempts: dict[str, Callable[[Channel], Awaitable[object]]] = {
        "publish to orders": lambda channel: publish_to(channel, "orders"),
        "publish to own acks": lambda channel: publish_to(channel, names.link_acks(mine)),
        "publish to another's data": lambda channel: publish_to(channel, names.link_data(other)),
        "publish to the default exchange": lambda channel: publish_to(channel, ""),
        "publish as another": lambda channel: publish_to(
            channel, names.link_data(mine), names.link_user("sydney")
        ),
        "bind to orders": lambda channel: bind_to(channel, "orders"),
        "bind to own data": lambda channel: bind_to(channel, names.link_data(mine)),
        "read egress": lambda channel: read(channel, names.egress("orders")),
        "read the log": lambda channel: read(channel, names.log),
        "make any queue": lambda channel: channel.declare_queue("any", exclusive=True),
        "make a queue with another's prefix": lambda channel: channel.declare_queue(
            names.sender_queue(other), exclusive=True
        ),
        "make an exchange": lambda channel: channel.declare_exchange("any"),
        "delete own data exchange": lambda channel: channel.exchange_delete(names.link_data(mine)),
    }
    allowed = []
    async with connection:
        for what, attempt in attempts.items():
            # A refusal closes the channel, so each has its own.
            channel = await connection.channel()
            try:
                await attempt(channel)
            except AMQPException as error:
                if not re.search("ACCESS_REFUSED|user_id property", str(error)):
                    raise
            else:
                allowed.append(what)
    assert allowed == []


async def test_an_application_cannot_touch_what_is_isthmus_s(paris: Site) -> None:
    await paris.apply()
    names = paris.names
    link = paris.mesh.links_to("paris")[0]
    address = paris.book.application("paris")
    with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
        await publish(address, names.link_data(link), "")
    connection = await aio_pika.connect(address.uri)
    async with connection:
        channel = await connection.channel()
        # What any client does: a queue of its own, of a name that the broker makes.
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("orders", "#")
        with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
            await channel.declare_queue(names.egress("other"))


async def test_a_node_whose_users_are_not_there_yet_says_whom_the_broker_refused_and_what_to_run(
    paris: Site,
) -> None:
    await paris.make_admin()
    brokers, book = RabbitBrokers(), paris.book
    tried: list[tuple[Callable[[], Awaitable[object]], type[Exception], str]] = [
        (
            lambda: brokers.open_egress(book, "paris"),
            EgressRefused,
            paris.names.packer_user("paris"),
        ),
        (
            lambda: brokers.open_exchange(book, "paris"),
            LocalClosed,
            paris.names.relay_user("paris"),
        ),
        (lambda: brokers.open_log(book, "paris"), LogRefused, paris.names.log_user("paris")),
    ]
    for connect, error, user in tried:
        with pytest.raises(error, match=f"as user '{re.escape(user)}': `isthmus apply` makes"):
            await connect()
