"""Large messages that consumers get without the body, which is in the site's content store."""

from __future__ import annotations

from hashlib import sha256

from relay.batches.mesh_headers import (
    CONTENT_BYTES_HEADER,
    CONTENT_ID_HEADER,
    CONTENT_SHA256_HEADER,
)
from relay.bulk_amqp.content_header import rewrite
from relay.bulk_amqp.field_table import entry, long_integer, long_string
from relay.content.contents import Contents, OnAway, StoringRule
from relay.delivery.local_exchange import Outgoing


async def referred(
    message: Outgoing, contents: Contents, rule: StoringRule, on_away: OnAway
) -> Outgoing:
    """Return the message with headers in place of its body, which is in the store by then. Waits
    while the store is away.
    """
    body = memoryview(message.body)
    content_id = await contents.put(body, rule.retention_s, on_away)
    added = b"".join(
        (
            entry(CONTENT_ID_HEADER, long_string(content_id.hex().encode())),
            entry(CONTENT_BYTES_HEADER, long_integer(len(body))),
            entry(CONTENT_SHA256_HEADER, long_string(sha256(body).hexdigest().encode())),
        )
    )
    return message._replace(properties=rewrite(message.properties, {}, added), body=b"")
