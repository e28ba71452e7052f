"""Repair batches: messages that were lost at some site, sent again by any site that still has them.

Such a batch is one of the site that sends it: its name, number and incarnation are of that site's
packer, its destinations are the sites that lack the messages. Whose messages they are, stands in a
header of each (`x-mesh-repaired`), which is delivered with it: packers let no publisher set one.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.batches.batch import BatchHeader, BatchKind, Entry
from relay.batches.mesh_headers import REPAIRED_HEADER
from relay.bulk_amqp import content_header, field_table
from relay.bulk_amqp.errors import MalformedProperties

_LONG_STRING = b"S"
_VALUE_AT = 5


def as_repaired(entry: Entry, origin: str) -> Entry:
    """The message as it goes into a repair batch. Raises MalformedProperties."""
    return entry._replace(properties=with_repaired(entry.properties, origin))


def with_repaired(properties: bytes, origin: str) -> bytes:
    """These properties, and whose message it is. Raises MalformedProperties."""
    added = field_table.entry(REPAIRED_HEADER, field_table.long_string(origin.encode()))
    return content_header.rewrite(properties, {}, added)


def message_origin(header: BatchHeader, entries: Sequence[Entry]) -> str:
    """The cluster ID of the site where the batch's messages were published."""
    told = repaired_of(entries[0].properties) if header.kind is BatchKind.REPAIR and entries else ""
    return told or header.name.series.origin


def repaired_of(properties: bytes) -> str:
    """The cluster ID of the message's origin, if a repair has brought it; empty if none has."""
    try:
        told = content_header.header(properties, REPAIRED_HEADER)
    except MalformedProperties:
        return ""
    if told is None or told[:1] != _LONG_STRING:
        return ""
    return told[_VALUE_AT:].decode(errors="replace")
