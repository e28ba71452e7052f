"""What a user may try at a site's broker, one row of docs/security.md's table each.

Every trial is made on a real broker, over the connection that its kind takes. Those that take
something away come last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from relay.log.rabbit.stream_connection import PUBLISHER, StreamEdge
from tests.federation.brokers.trier import OTHER, Trier

CLOSE = "close connections of others by the management API"
"""The last row. One connection serves all users: it takes seconds till the broker lists it."""
Trial = Callable[[Trier], Awaitable[object]]


def trials() -> Mapping[str, Trial]:
    """By what the table calls them, in its order."""
    return _publishing() | _hearing() | _queues() | _log() | _api() | _making() | _taking_away()


def _publishing() -> dict[str, Trial]:
    def batches(name: str) -> Trial:
        return lambda u: u.publish(u.site.names.link_data(u.link(name)))

    def acks(name: str) -> Trial:
        return lambda u: u.publish(u.site.names.link_acks(u.link(name)))

    return {
        "log in by AMQP": lambda u: u.log_in(u.site.vhost.name),
        "log in to another virtual host": lambda u: u.log_in("/"),
        "publish to an exchange of the mesh that arrives here": lambda u: u.publish("orders"),
        "publish to one that only leaves here": lambda u: u.publish("prices"),
        "publish to any other exchange of applications": lambda u: u.publish(OTHER),
        "publish to the default exchange: into any queue": lambda u: u.publish(
            "", u.site.names.egress("orders")
        ),
        "publish to dead letters": lambda u: u.publish(u.site.names.dead_letters),
        "publish to the quarantine": lambda u: u.publish(u.site.names.quarantine),
        "publish as another user": lambda u: u.publish_as_another(),
        "write batches of link tokyo-paris": batches("tokyo-paris"),
        "write acks of link tokyo-paris": acks("tokyo-paris"),
        "write batches of link paris-tokyo": batches("paris-tokyo"),
        "write acks of link paris-tokyo": acks("paris-tokyo"),
        "write batches of link sydney-paris": batches("sydney-paris"),
        "write acks of link sydney-paris": acks("sydney-paris"),
    }


def _hearing() -> dict[str, Trial]:
    def batches(name: str) -> Trial:
        return lambda u: u.hear(u.site.names.link_data(u.link(name)))

    def acks(name: str) -> Trial:
        return lambda u: u.hear(u.site.names.link_acks(u.link(name)))

    return {
        "hear batches of link tokyo-paris": batches("tokyo-paris"),
        "hear acks of link tokyo-paris": acks("tokyo-paris"),
        "hear batches of link paris-tokyo": batches("paris-tokyo"),
        "hear acks of link paris-tokyo": acks("paris-tokyo"),
        "hear batches of link sydney-paris": batches("sydney-paris"),
        "hear acks of link sydney-paris": acks("sydney-paris"),
        "hear what an exchange of the mesh gets": lambda u: u.hear("orders"),
        "hear what is put aside": lambda u: u.hear(u.site.names.dead_letters),
    }


def _queues() -> dict[str, Trial]:
    return {
        "count what waits in a queue": lambda u: u.on_channel(
            lambda channel: channel.declare_queue(u.site.names.egress("orders"), passive=True)
        ),
        "take from egress": lambda u: u.get(u.site.names.egress("orders")),
        "take from dead letters": lambda u: u.get(u.site.names.dead_letters),
        "take from the quarantine": lambda u: u.get(u.site.names.quarantine),
        "take from a queue of an application": lambda u: u.get(OTHER),
        "lead another exchange into egress": lambda u: _bind(u, "amq.topic"),
        "end what leads into egress": _unbind,
        "lead one exchange of the mesh into another": _bind_exchanges,
    }


def _log() -> dict[str, Trial]:
    return {
        "read the log by AMQP": lambda u: u.read_stream(u.site.names.log),
        "write the log by AMQP": lambda u: u.publish("", u.site.names.log),
        "see by the stream protocol where the log is": lambda u: u.on_stream(
            lambda stream: stream.stream_exists(u.site.names.log)
        ),
        "read the log": lambda u: u.on_stream(
            lambda stream: stream.subscribe_at(u.site.names.log, 1, StreamEdge.FIRST)
        ),
        "write the log": lambda u: u.on_stream(
            lambda stream: stream.declare_publisher(u.site.names.log, "", PUBLISHER)
        ),
        "store the deliverer's mark": lambda u: u.store_offset(),
        "make another stream": lambda u: u.on_stream(
            lambda stream: stream.create_stream(f"stream of {u.user}")
        ),
    }


def _api() -> dict[str, Trial]:
    return {
        "look at the management API": lambda u: u.api("GET", "/queues/{vhost}"),
        "see users and rights by it": lambda u: u.api("GET", "/vhosts/{vhost}/permissions"),
        "take messages by it": lambda u: u.api(
            "POST",
            f"/queues/{{vhost}}/{u.site.names.egress('orders')}/get",
            {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
        ),
        "publish by it": lambda u: u.api(
            "POST",
            "/exchanges/{vhost}/orders/publish",
            {"properties": {}, "routing_key": "k", "payload": "x", "payload_encoding": "string"},
        ),
        "set a policy by it": lambda u: u.api(
            "PUT", "/policies/{vhost}/trial", {"pattern": "none", "definition": {"max-length": 1}}
        ),
        "make users and give rights by it": lambda u: u.api(
            "PUT", f"/users/{u.site.vhost.name}.trial", {"password": "x", "tags": ""}
        ),
    }


def _making() -> dict[str, Trial]:
    def queue(name: Callable[[Trier], str]) -> Trial:
        return lambda u: u.on_channel(
            lambda channel: channel.declare_queue(name(u), exclusive=True)
        )

    return {
        "make any queue": queue(lambda u: "any"),
        "make any queue of the mesh's names": queue(lambda u: u.site.names.egress("any")),
        "make any exchange": lambda u: u.on_channel(lambda c: c.declare_exchange("any")),
        "make any exchange of the mesh's names": lambda u: u.on_channel(
            lambda c: c.declare_exchange(f"{u.site.names.prefix}any")
        ),
        "hold the packer's lock": queue(lambda u: u.site.names.packer_lock),
        "hold the deliverer's lock": queue(lambda u: u.site.names.deliverer_lock),
        "be the receiver of link tokyo-paris": queue(
            lambda u: u.site.names.receiver_queue(u.link("tokyo-paris"))
        ),
        "be the receiver of link paris-tokyo": queue(
            lambda u: u.site.names.receiver_queue(u.link("paris-tokyo"))
        ),
    }


def _taking_away() -> dict[str, Trial]:
    def purge(name: Callable[[Trier], str]) -> Trial:
        async def trial(u: Trier) -> None:
            async with u.channel() as channel:
                await (await channel.get_queue(name(u), ensure=False)).purge()

        return trial

    def delete(name: Callable[[Trier], str]) -> Trial:
        return lambda u: u.on_channel(lambda channel: channel.queue_delete(name(u)))

    return {
        "purge egress": purge(lambda u: u.site.names.egress("orders")),
        "purge dead letters": purge(lambda u: u.site.names.dead_letters),
        "delete egress": delete(lambda u: u.site.names.egress("orders")),
        "delete dead letters": delete(lambda u: u.site.names.dead_letters),
        "delete an exchange of the mesh": lambda u: u.on_channel(
            lambda channel: channel.exchange_delete("prices")
        ),
        "delete an exchange of a link": lambda u: u.on_channel(
            lambda channel: channel.exchange_delete(u.site.names.link_data(u.link("tokyo-paris")))
        ),
        "delete the log": lambda u: u.on_stream(
            lambda stream: stream.delete_stream(u.site.names.log)
        ),
        "delete the log by AMQP": _delete_a_log_by_amqp,
    }


async def _bind(u: Trier, exchange: str) -> None:
    async with u.channel() as channel:
        queue = await channel.get_queue(u.site.names.egress("orders"), ensure=False)
        await queue.bind(exchange, "trial")


async def _unbind(u: Trier) -> None:
    async with u.channel() as channel:
        queue = await channel.get_queue(u.site.names.egress("prices"), ensure=False)
        await queue.unbind("prices", "#")


async def _bind_exchanges(u: Trier) -> None:
    async with u.channel() as channel:
        target = await channel.get_exchange("orders", ensure=False)
        await target.bind("prices", "trial")


async def _delete_a_log_by_amqp(u: Trier) -> None:
    """Whoever could, has deleted it: it is made again first, as it was."""
    async with u.administrator().stream() as stream:
        if not await stream.stream_exists(u.site.names.log):
            await stream.create_stream(u.site.names.log)
    async with u.channel() as channel:
        await channel.queue_delete(u.site.names.log)
