"""Dead letters: messages that the site's broker refused too often, kept with the reason.

They go to a durable queue at the site, through the exchange of its name, in the same confirmed way
as any delivery; the flow goes on only once the queue has them.
"""

from __future__ import annotations

from relay.batches.batch import BatchName, Entry
from relay.batches.mesh_headers import ATTEMPTS_HEADER, DEAD_REASON_HEADER
from relay.bulk_amqp.content_header import EXPIRATION, rewrite
from relay.delivery.local_exchange import Outgoing
from relay.delivery.properties import text_field
from relay.delivery.put_aside import origin_fields


def dead_letter(
    entry: Entry,
    name: BatchName,
    number: int,
    path: tuple[str, ...],
    *,
    queue: str,
    reason: str,
    attempts: int,
) -> Outgoing:
    """The message as sent, with why, how often, where to and which way it came. `number` is its
    own among the entries of batch `name`.
    """
    fields = (
        text_field(DEAD_REASON_HEADER, reason.encode()[:1024])
        + text_field(ATTEMPTS_HEADER, str(attempts).encode())
        + origin_fields(entry, name, number, path)
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)
