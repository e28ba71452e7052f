"""Dead letters: messages that the site's broker refused too often, kept with the reason.

They go to a durable queue at the site through the default exchange, in the same confirmed way as
any delivery; the flow goes on only once the queue has them.
"""

from __future__ import annotations

from relay.batch import BatchName, Entry
from relay.bulk_amqp.content_header import EXPIRATION, rewrite
from relay.delivery_properties import text_field
from relay.local_exchange import Outgoing


def dead_letter(
    entry: Entry, name: BatchName, path: tuple[str, ...], *, queue: str, reason: str, attempts: int
) -> Outgoing:
    """The message as sent, with why, how often, where to and which way it came."""
    fields = (
        text_field(b"x-mesh-dead-reason", reason.encode()[:1024])
        + text_field(b"x-mesh-dead-attempts", str(attempts).encode())
        + text_field(b"x-mesh-exchange", name.series.exchange.encode())
        + text_field(b"x-mesh-routing-key", entry.routing_key)
        + text_field(b"x-mesh-path", ",".join(path).encode())
        + text_field(b"x-mesh-batch", str(name).encode())
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)
