"""A publisher at one node, and how long nothing of what it sends is confirmed."""

from __future__ import annotations

import asyncio
import itertools

from relay.bulk_amqp import BulkAmqpError, Publisher, connect

EVERY_S = 0.2
PATIENCE_S = 3.0


class Traffic:
    """Publishes to one queue through one node, on a new connection whenever no answer comes."""

    def __init__(self, uri: str, queue: str) -> None:
        self.confirms: list[float] = []
        self._uri = uri
        self._queue = queue.encode()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = asyncio.create_task(self._publish_for_ever())

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def longest_gap(self, began: float, ended: float) -> float:
        """Seconds without a confirm, within these times."""
        within = [at for at in self.confirms if began < at < ended]
        times = [began, *within, ended]
        return max(after - before for before, after in itertools.pairwise(times))

    async def _publish_for_ever(self) -> None:
        while True:
            try:
                connection = await connect(self._uri, name="traffic")
            except (BulkAmqpError, OSError):
                await asyncio.sleep(EVERY_S)
                continue
            try:
                publisher = Publisher(await connection.channel())
                await publisher.start()
                while await self._is_confirmed(publisher):
                    self.confirms.append(asyncio.get_running_loop().time())
                    await asyncio.sleep(EVERY_S)
            except BulkAmqpError:
                await asyncio.sleep(EVERY_S)
            finally:
                connection.abort("the traffic gives this connection up")

    async def _is_confirmed(self, publisher: Publisher) -> bool:
        publication = publisher.publish_many([("", self._queue, b"\0\0", b"x")])
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome = await publisher.wait(publication)
        except TimeoutError:
            return False
        return not outcome.unknown and not outcome.nacked
