"""Publishing and consuming by AMQP 0.9.1, with all that a relay can choose."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.floors.site import Site
from relay.batches.mesh_headers import EXCHANGE_HEADER, PATH_HEADER
from relay.bulk_amqp import BulkAmqpError, Consumer, Delivery, Message, Publication, Publisher
from relay.bulk_amqp.content_header import CLUSTER_ID, USER_ID, rewrite
from relay.delivery.properties import DeliveryStamp, text_field

BODY = os.urandom(512) + bytes(512)
PROPERTIES = b"\x10\x80\x02\x24" + b"0" * 36  # delivery mode 2, a message ID like a UUID
_FIELDS = {"user_id": USER_ID, "cluster_id": CLUSTER_ID}
_ACKED_S = 0.3
FROM_FIRST: Mapping[str, str] = {"x-stream-offset": "first"}


@dataclass(frozen=True)
class Publishing:
    """Publishing with confirms: `group` messages a write, at most `window` unconfirmed."""

    window: int = 4000
    group: int = 256
    exchange: str = "topic"
    mandatory: bool = False
    stamp: str = ""
    """Properties that a deliverer adds to a message: `all`, `user_id`, `cluster_id`, `headers`."""

    async def run(self, site: Site, kind: str, count: int) -> None:
        connection = await site.connect()
        publisher = Publisher(await connection.channel())
        await publisher.start()
        group = [self._message(site, kind)] * self.group
        under_way: deque[Publication] = deque()
        sent = 0
        while sent < count:
            number = min(self.group, count - sent)
            while publisher.unconfirmed_messages + number > self.window:
                assert (await publisher.wait(under_way.popleft())).all_routed
            under_way.append(publisher.publish_many(group[:number], mandatory=self.mandatory))
            sent += number
            # The loop writes at the end of its turn: else several groups would go as one.
            await asyncio.sleep(0)
        for one in under_way:
            assert (await publisher.wait(one)).all_routed
        await connection.close()

    def _message(self, site: Site, kind: str) -> Message:
        properties = PROPERTIES
        added = text_field(EXCHANGE_HEADER, b"orders") + text_field(PATH_HEADER, b"site0,site1")
        if self.stamp == "all":
            stamp = DeliveryStamp("orders", ("site0", "site1"), site.user)
            properties = stamp.apply(properties, flagged=False)
        elif self.stamp == "headers":
            properties = rewrite(properties, {}, added)
        elif self.stamp:
            changes: dict[int, bytes | int | None]
            changes = {_FIELDS[self.stamp]: site.user.encode()}
            properties = rewrite(properties, changes, b"")
        exchange = f"{kind}.{self.exchange}" if self.exchange else ""
        return exchange, kind.encode(), properties, BODY


@dataclass(frozen=True)
class Consuming:
    """Acknowledges every `ack` messages all up to there."""

    prefetch: int = 2000
    ack: int = 250
    is_stream: bool = False

    async def run(self, site: Site, kind: str, count: int) -> None:
        connection = await site.connect()
        finished: asyncio.Future[None] = connection.loop.create_future()
        seen = settled = 0

        def on_deliveries(deliveries: Sequence[Delivery]) -> None:
            nonlocal seen, settled
            for delivery in deliveries:
                seen += 1
                if seen - settled >= self.ack or seen >= count:
                    consumer.ack(delivery[0])
                    settled = seen
            if seen >= count and not finished.done():
                finished.set_result(None)

        def on_ended(error: BulkAmqpError) -> None:
            if not finished.done():
                finished.set_exception(error)

        consumer = Consumer(await connection.channel(), kind, on_deliveries, on_ended=on_ended)
        try:
            arguments = FROM_FIRST if self.is_stream else None
            await consumer.start(prefetch=self.prefetch, arguments=arguments)
            await finished
            # A channel that closes drops the acknowledgements that its queue has no room for yet.
            await asyncio.sleep(_ACKED_S)
        finally:
            await connection.close()
