"""Quarantine: what may not be guessed about, kept whole with the reason.

Bytes that are no batch, batches whose entries cannot be read, messages older than the outage
window (whether the barrier would still know them, nobody can say), and messages that the site's
broker cannot take. What is here is not "seen": the same message may still arrive by another way.
"""

from __future__ import annotations

from dataclasses import replace

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry
from relay.batches.format import seal
from relay.batches.mesh_headers import OFFSET_HEADER, QUARANTINE_REASON_HEADER
from relay.bulk_amqp.content_header import EXPIRATION, rewrite
from relay.delivery.local_exchange import Outgoing
from relay.delivery.properties import text_field
from relay.delivery.put_aside import origin_fields

_EMPTY_PROPERTIES = b"\x10\x00\x02"
"""Flags with delivery_mode alone, and its value: persistent."""


def quarantined_bytes(data: bytes, *, queue: str, reason: str, offset: int | None) -> Outgoing:
    """A whole record of the log that cannot be read, with its offset there."""
    fields = text_field(QUARANTINE_REASON_HEADER, reason.encode()[:1024])
    if offset is not None:
        fields += text_field(OFFSET_HEADER, str(offset).encode())
    return Outgoing(queue.encode(), rewrite(_EMPTY_PROPERTIES, {}, fields), data)


def quarantined_message(
    entry: Entry, name: BatchName, number: int, path: tuple[str, ...], *, queue: str, reason: str
) -> Outgoing:
    """One message as sent, with why it is here and where it came from. `number` is its own among
    the entries of batch `name`.
    """
    fields = text_field(QUARANTINE_REASON_HEADER, reason.encode()[:1024]) + origin_fields(
        entry, name, number, path
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)


def quarantined_record(entry: Entry, header: BatchHeader, *, queue: str, reason: str) -> Outgoing:
    """One message whose properties leave no room for ours: as the body, a batch of it alone."""
    _, data = seal(replace(header, kind=BatchKind.MESSAGES, fragment=None), [entry])
    return quarantined_bytes(data, queue=queue, reason=reason, offset=None)


def quarantined_note(entry: Entry, header: BatchHeader, *, queue: str, reason: str) -> Outgoing:
    """Of one message that this broker takes in no form: where it stands in the log."""
    said = f"{reason}; {len(entry.body)} bytes, only in the log: {header.name}"
    return quarantined_bytes(b"", queue=queue, reason=said, offset=None)
