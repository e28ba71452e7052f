"""Undeliverable messages, in the forms in which dead letters and quarantine take them. Pure.

Dead letters were refused too often by the site's broker. Quarantine takes whatever leaves room for
guesses: bytes that are no batch, batches with unreadable entries, messages older than the outage
window (the barrier may have forgotten them), and messages that the site's broker cannot take. A
quarantined message does not count as seen: the same message may still arrive by another way.

Both go to durable queues at the site, each through the exchange of its name, confirmed as any
delivery; the flow goes on only once the queue has the message.
"""

from __future__ import annotations

from dataclasses import replace

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry
from relay.batches.format import seal
from relay.batches.mesh_headers import (
    ATTEMPTS_HEADER,
    DEAD_REASON_HEADER,
    OFFSET_HEADER,
    QUARANTINE_REASON_HEADER,
)
from relay.bulk_amqp.content_header import EXPIRATION, check, rewrite
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.chunk import DeliveryChunk
from relay.delivery.context import DeliverySettings
from relay.delivery.local_exchange import Outgoing
from relay.delivery.properties import text_field
from relay.delivery.put_aside import origin_fields

_EMPTY_PROPERTIES = b"\x10\x00\x02"
"""Flags with delivery_mode alone, and its value: persistent."""


def dead_letter_of(chunk: DeliveryChunk, number: int, settings: DeliverySettings) -> Outgoing:
    """Form the dead letter of a message that was refused too often."""
    part = chunk.part_of(number)
    return dead_letter(
        chunk.entry(number),
        part.names[-1],
        part.first + number - part.start,
        part.header.path,
        queue=settings.dead_letter_queue,
        reason=chunk.reasons[number],
        attempts=chunk.attempts[number],
    )


def quarantined_of(chunk: DeliveryChunk, number: int, settings: DeliverySettings) -> Outgoing:
    """Form what the quarantine takes of this message."""
    part = chunk.part_of(number)
    queue, reason = settings.quarantine_queue, chunk.reasons[number]
    if number in chunk.raw:
        raw = chunk.raw[number]
        return quarantined_bytes(raw, queue=queue, reason=reason, offset=part.place.offset)
    try:
        check(chunk.entry(number).properties)
    except MalformedProperties:  # this site's broker would not take them either
        return quarantined_record(chunk.entry(number), part.header, queue=queue, reason=reason)
    return quarantined_message(
        chunk.entry(number),
        part.names[-1],
        part.first + number - part.start,
        part.header.path,
        queue=queue,
        reason=reason,
    )


def smaller_form(
    chunk: DeliveryChunk, number: int, message: Outgoing, settings: DeliverySettings
) -> Outgoing:
    """Form the substitute for a message that the broker does not take in its present form."""
    entry, header = chunk.entry(number), chunk.part_of(number).header
    form = quarantined_record if message.body == entry.body else quarantined_note
    return form(entry, header, queue=settings.quarantine_queue, reason=chunk.reasons[number])


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
    """Form a message as sent, with the reason, the number of attempts, its address and its path.
    `number` is the entry's place in batch `name`.
    """
    fields = (
        text_field(DEAD_REASON_HEADER, reason.encode()[:1024])
        + text_field(ATTEMPTS_HEADER, str(attempts).encode())
        + origin_fields(entry, name, number, path)
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)


def quarantined_bytes(data: bytes, *, queue: str, reason: str, offset: int | None) -> Outgoing:
    """Form a whole unreadable record of the log, with its offset there."""
    fields = text_field(QUARANTINE_REASON_HEADER, reason.encode()[:1024])
    if offset is not None:
        fields += text_field(OFFSET_HEADER, str(offset).encode())
    return Outgoing(queue.encode(), rewrite(_EMPTY_PROPERTIES, {}, fields), data)


def quarantined_message(
    entry: Entry, name: BatchName, number: int, path: tuple[str, ...], *, queue: str, reason: str
) -> Outgoing:
    """Form a message as sent, with reason and origin. `number`: its place in batch `name`."""
    fields = text_field(QUARANTINE_REASON_HEADER, reason.encode()[:1024]) + origin_fields(
        entry, name, number, path
    )
    properties = rewrite(entry.properties, {EXPIRATION: None}, fields)
    return Outgoing(queue.encode(), properties, entry.body)


def quarantined_record(entry: Entry, header: BatchHeader, *, queue: str, reason: str) -> Outgoing:
    """Form a batch of this message alone, since its properties leave no room for headers."""
    _, data = seal(replace(header, kind=BatchKind.MESSAGES, fragment=None), [entry])
    return quarantined_bytes(data, queue=queue, reason=reason, offset=None)


def quarantined_note(entry: Entry, header: BatchHeader, *, queue: str, reason: str) -> Outgoing:
    """Form a note of where a message stands in the log that this broker takes in no form."""
    note = f"{reason}; {len(entry.body)} bytes, only in the log: {header.name}"
    return quarantined_bytes(b"", queue=queue, reason=note, offset=None)
