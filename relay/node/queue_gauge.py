"""How many messages wait in a site's own queues: asked of its broker, which counts them.

Egress queues every two seconds, half as often while they are empty. Dead letters and quarantine
when this node has put something there or taken it away, and else at each eighth look: somebody
else may empty them, and with hundreds of sites each question counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from relay import ticks
from relay.bulk_amqp import BulkAmqpError, Channel, ChannelClosed, Connection
from relay.retry import reconnect_delay_s

ASK_EVERY_S = 2.0
"""While messages wait in egress; twice that while none do."""
LOOKS_BETWEEN = 8
"""At egress, before dead letters and quarantine are asked about unasked."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages; -1: nobody knows."""

    egress: int = -1
    dead_letters: int = -1
    quarantine: int = -1


@dataclass(frozen=True, slots=True)
class GaugedQueues:
    """Which queues are asked. `stirred` is another number after each message that this node has put
    aside or mended.
    """

    egress: Callable[[], Iterable[str]]
    dead_letters: str
    quarantine: str
    stirred: Callable[[], int]


async def watch_queues(
    connect: Callable[[], Awaitable[Connection]],
    queues: GaugedQueues,
    tell: Callable[[Waiting], None],
    random: Callable[[], float],
    *,
    ask_every_s: float = ASK_EVERY_S,
) -> None:
    """Tell, for ever; that nobody knows, while the broker cannot be asked."""
    failures = 0
    while True:
        try:
            connection = await connect()
            try:
                failures = 0
                await _Asking(connection, queues).tell(tell, ask_every_s)
            finally:
                await connection.close()
        except (BulkAmqpError, OSError):
            # Said by the packer, which cannot reach the broker either.
            tell(Waiting())
            await asyncio.sleep(reconnect_delay_s(failures, random))
            failures += 1


class _Asking:
    """Over one connection."""

    def __init__(self, connection: Connection, queues: GaugedQueues) -> None:
        self._connection = connection
        self._queues = queues
        self._channel: Channel | None = None

    async def tell(self, tell: Callable[[Waiting], None], every_s: float) -> None:
        queues = self._queues
        dead_letters = quarantine = 0
        stirred = -1
        looks_left = 0
        while True:
            egress = 0
            for queue in queues.egress():
                egress += await self._count(queue)
            was_stirred = queues.stirred() != stirred
            if was_stirred or looks_left == 0:
                stirred = queues.stirred()
                dead_letters = await self._count(queues.dead_letters)
                quarantine = await self._count(queues.quarantine)
                # The number may precede its message: then the next look sees that.
                looks_left = 1 if was_stirred else LOOKS_BETWEEN
            looks_left -= 1
            tell(Waiting(egress, dead_letters, quarantine))
            wait_s = every_s if egress or was_stirred else 2 * every_s
            await asyncio.sleep(ticks.about(wait_s, asyncio.get_running_loop().time()))

    async def _count(self, queue: str) -> int:
        if self._channel is None:
            self._channel = await self._connection.channel()
        try:
            return (await self._channel.declare_queue(queue, passive=True)).message_count or 0
        except ChannelClosed:
            self._channel = None
            return 0  # not declared (yet): nothing waits in it
