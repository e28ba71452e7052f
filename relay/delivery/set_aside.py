"""A chunk's message as the dead letters or the quarantine get it. Pure."""

from __future__ import annotations

from relay.bulk_amqp.content_header import check
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.chunk import Chunk
from relay.delivery.context import DeliverySettings
from relay.delivery.dead_letter import dead_letter
from relay.delivery.local_exchange import Outgoing
from relay.delivery.quarantine import (
    quarantined_bytes,
    quarantined_message,
    quarantined_note,
    quarantined_record,
)


def dead_letter_of(chunk: Chunk, number: int, settings: DeliverySettings) -> Outgoing:
    """It was refused too often."""
    part = chunk.part_of(number)
    return dead_letter(
        chunk.entries[number],
        part.names[-1],
        part.first + number - part.start,
        part.header.path,
        queue=settings.dead_letter_queue,
        reason=chunk.reasons[number],
        attempts=chunk.attempts[number],
    )


def quarantined_of(chunk: Chunk, number: int, settings: DeliverySettings) -> Outgoing:
    """It may not be guessed about."""
    part = chunk.part_of(number)
    queue, reason = settings.quarantine_queue, chunk.reasons[number]
    if number in chunk.raw:
        raw = chunk.raw[number]
        return quarantined_bytes(raw, queue=queue, reason=reason, offset=part.place.offset)
    try:
        check(chunk.entries[number].properties)
    except MalformedProperties:  # nor would this site's broker take them
        return quarantined_record(chunk.entries[number], part.header, queue=queue, reason=reason)
    return quarantined_message(
        chunk.entries[number],
        part.names[-1],
        part.first + number - part.start,
        part.header.path,
        queue=queue,
        reason=reason,
    )


def smaller(chunk: Chunk, number: int, message: Outgoing, settings: DeliverySettings) -> Outgoing:
    """What is put aside instead of a message that the broker does not take in this form."""
    entry, header = chunk.entries[number], chunk.part_of(number).header
    form = quarantined_record if message.body is entry.body else quarantined_note
    return form(entry, header, queue=settings.quarantine_queue, reason=chunk.reasons[number])
