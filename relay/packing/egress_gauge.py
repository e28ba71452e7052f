"""How many messages wait in a site's egress queues: asked of the broker every two seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from relay.bulk_amqp import BulkAmqpError, ChannelClosed, Connection
from relay.retry import reconnect_delay_s

ASK_EVERY_S = 2.0


async def watch_egress(
    connect: Callable[[], Awaitable[Connection]],
    queues: Callable[[], Iterable[str]],
    tell: Callable[[int], None],
    random: Callable[[], float],
) -> None:
    """Tell the sum over `queues()`, for ever; -1 while the broker cannot be asked."""
    failures = 0
    while True:
        try:
            connection = await connect()
            try:
                failures = 0
                await _ask(connection, queues, tell)
            finally:
                await connection.close()
        except (BulkAmqpError, OSError):
            # Said by the packer, which cannot reach the broker either.
            tell(-1)
            await asyncio.sleep(reconnect_delay_s(failures, random))
            failures += 1


async def _ask(
    connection: Connection, queues: Callable[[], Iterable[str]], tell: Callable[[int], None]
) -> None:
    channel = await connection.channel()
    while True:
        waiting = 0
        for queue in queues():
            try:
                waiting += (await channel.declare_queue(queue, passive=True)).message_count or 0
            except ChannelClosed:
                channel = await connection.channel()  # not declared (yet): nothing waits in it
        tell(waiting)
        await asyncio.sleep(ASK_EVERY_S)
