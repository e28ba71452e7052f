"""Connections to a real broker: topology, what it objects to, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from isthmus.brokers.config import BrokerUser
from relay.bulk_amqp import (
    AuthenticationFailed,
    Channel,
    ChannelClosed,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    Consumer,
    connect,
)
from tests.conftest import Eventually, LocalBrokerFactory
from tests.live_brokers import Vhost, rabbitmqctl, take_all_memory
from tests.relay.bulk_amqp.live_channels import PLAIN, Connect, Inbox, started_publisher


async def test_each_refusal_has_its_code(connected: Connect, vhost: Vhost) -> None:
    connection = await connected()
    first = await connection.channel()
    await first.declare_queue("mine", exclusive=True)
    await first.declare_queue("durable", durable=True)
    stranger = await connected()

    async def refused(connection: Connection, what: Callable[[Channel], Awaitable[object]]) -> int:
        channel = await connection.channel()
        with pytest.raises(ChannelClosed) as closed:
            await asyncio.wait_for(what(channel), 10)
        assert channel.close_reason is closed.value
        return closed.value.code

    assert await refused(connection, lambda ch: ch.declare_queue("none", passive=True)) == 404
    assert await refused(connection, lambda ch: ch.declare_queue("durable", durable=False)) == 406
    assert await refused(stranger, lambda ch: ch.declare_queue("mine", passive=True)) == 405
    assert await refused(connection, lambda ch: ch.declare_exchange("amq.mine")) == 403
    assert (await refused(stranger, lambda ch: Consumer(ch, "none", lambda _: None).start())) == 404

    writer = await vhost.add_user(BrokerUser(f"w-{vhost.name}", "pw", configure="^$", write="^$"))
    limited = await connect(vhost.uri_as(writer))
    assert await refused(limited, lambda ch: ch.declare_queue("x")) == 403
    await limited.close()


async def test_wrong_credentials_and_unknown_virtual_hosts_are_told_apart_from_failures(
    vhost: Vhost,
) -> None:
    for uri in (
        vhost.amqp_uri.replace(vhost.password, "wrong"),
        vhost.amqp_uri.replace(f"/{vhost.name}", "/no-such-vhost"),
    ):
        with pytest.raises(AuthenticationFailed) as refused:
            await connect(uri)
        assert vhost.password not in str(refused.value)


async def test_topology_can_be_made_and_unmade(connected: Connect) -> None:
    channel = await (await connected()).channel()
    named = await channel.declare_queue("", exclusive=True, auto_delete=True)
    assert named.queue.startswith("amq.gen-")
    await channel.declare_exchange("source", "fanout", durable=True)
    await channel.declare_exchange("target", "topic", internal=True)
    await channel.bind_exchange("target", "source")
    await channel.bind_queue(named.queue, "target", "a.#")
    publisher = await started_publisher(await connected())

    async def routed() -> bool:
        publication = publisher.publish_many([("source", b"a.b", PLAIN, b"")], mandatory=True)
        return (await asyncio.wait_for(publisher.wait(publication), 10)).all_routed

    assert await routed()
    assert await channel.delete_queue(named.queue) == 1
    with pytest.raises(ChannelClosed):
        await channel.declare_queue(named.queue, passive=True)


async def test_an_exclusive_queue_goes_with_its_connection(
    connected: Connect, eventually: Eventually
) -> None:
    owner = await connected()
    await (await owner.channel()).declare_queue("lock", exclusive=True)
    await owner.close()
    assert owner.close_reason is not None
    assert owner.close_reason.code == 200
    heir = await connected()

    async def is_free() -> bool:
        try:
            await (await heir.channel()).declare_queue("lock", exclusive=True)
        except ChannelClosed:
            return False  # 4.3 may answer a close before all its processes see the queue gone
        return True

    await eventually(is_free, "the queue of a connection that was closed")


async def test_a_connection_that_an_operator_closes_says_so(
    connected: Connect, vhost: Vhost
) -> None:
    connection = await connected(name="to be closed")
    publisher = await started_publisher(connection)
    await vhost.api("DELETE", f"/connections/username/{vhost.user}")
    reason = await asyncio.wait_for(connection.wait_closed(), 10)
    assert type(reason) is ConnectionClosed
    assert reason.code == 320
    with pytest.raises(ConnectionClosed):
        publisher.publish_many([("", b"q", PLAIN, b"")])


async def test_a_killed_broker_leaves_unconfirmed_publishes_unknown(
    local_broker_factory: LocalBrokerFactory, eventually: Eventually
) -> None:
    user = BrokerUser("app", "pw")
    broker = await local_broker_factory("a", users=(user,))
    uri = broker.spec.amqp_uri(user, "/")
    consuming, publishing = await connect(uri), await connect(uri)
    channel = await consuming.channel()
    await channel.declare_queue("q", durable=True)
    inbox = Inbox(channel, "q")
    await inbox.consumer.start()
    publisher = await started_publisher(publishing)
    told: list[str | None] = []
    publishing.on_blocked = told.append

    # A memory limit of nothing: publishers are blocked, so nothing more is confirmed.
    await take_all_memory(broker)
    blocked = publisher.publish_many([("", b"q", PLAIN, bytes(1000))] * 100)
    await eventually(lambda: publishing.blocked, "blocked", deadline_s=20)
    assert told == [publishing.blocked]
    assert blocked.outcome is None
    assert publisher.unconfirmed_messages == 100
    assert 100_000 <= publisher.unconfirmed_bytes <= 110_000
    await eventually(lambda: publisher.oldest_unconfirmed_age > 0, "some age")

    await rabbitmqctl(broker, "set_vm_memory_high_watermark", "0.6")
    assert (await asyncio.wait_for(publisher.wait(blocked), 20)).all_routed
    await eventually(lambda: publishing.blocked is None, "unblocked", deadline_s=20)
    assert (publisher.unconfirmed_messages, publisher.unconfirmed_bytes) == (0, 0)
    assert publisher.oldest_unconfirmed_age == 0
    assert told[-1] is None

    await take_all_memory(broker)
    last = publisher.publish_many([("", b"q", PLAIN, b"last")] * 2)
    await eventually(lambda: publishing.blocked, "blocked again", deadline_s=20)
    broker.kill()
    outcome = await asyncio.wait_for(publisher.wait(last), 10)
    assert outcome.unknown == (last.first, last.last)
    assert isinstance(await asyncio.wait_for(consuming.wait_closed(), 10), ConnectionLost)
    assert isinstance(publishing.close_reason, ConnectionLost)
    assert inbox.ended == [consuming.close_reason]
