"""Quarantine: what may not be guessed about, kept whole with the reason.

Bytes that are no batch, batches whose entries cannot be read, and messages older than the outage
window (whether the barrier would still know them, nobody can say). What is here is not "seen":
the same message may still arrive by another way.
"""

from __future__ import annotations

from relay.batch import BatchName, Entry
from relay.bulk_amqp.content_header import EXPIRATION, rewrite
from relay.delivery_properties import text_field
from relay.local_exchange import Outgoing

_EMPTY_PROPERTIES = b"\x10\x00\x02"
"""Flags with delivery_mode alone, and its value: persistent."""


def quarantined_bytes(data: bytes, *, queue: str, reason: str, offset: int | None) -> Outgoing:
    """A whole record of the log that cannot be read, with its offset there."""
    fields = text_field(b"x-mesh-quarantine-reason", reason.encode()[:1024])
    if offset is not None:
        fields += text_field(b"x-mesh-log-offset", str(offset).encode())
    return Outgoing(queue.encode(), rewrite(_EMPTY_PROPERTIES, {}, fields), data)


def quarantined_message(
    entry: Entry, name: BatchName, path: tuple[str, ...], *, queue: str, reason: str
) -> Outgoing:
    """One message as sent, with why it is here and where it came from."""
    fields = (
        text_field(b"x-mesh-quarantine-reason", reason.encode()[:1024])
        + text_field(b"x-mesh-exchange", name.series.exchange.encode())
        + text_field(b"x-mesh-routing-key", entry.routing_key)
        + text_field(b"x-mesh-path", ",".join(path).encode())
        + text_field(b"x-mesh-batch", str(name).encode())
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)
