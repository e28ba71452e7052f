"""Headers that the relay gives messages: their names and meanings, and the header of repairs.

A repair batch brings messages that were lost at some site, sent again by any site that still has
them. Name, number and incarnation of the batch are those of the sender's packer, its destinations
are the sites that lack the messages. The origin of each message stands in its header
`x-mesh-repaired`, which is delivered too: packers let no publisher set that header.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay.batches.batch import BatchHeader, BatchKind, Entry
from relay.bulk_amqp import content_header, field_table
from relay.bulk_amqp.errors import MalformedProperties

FORGEABLE_PREFIX = b"x-mesh-"
"""Prefix of the relay's own headers: packers remove such headers from published messages."""

PATH_HEADER = b"x-mesh-path"
EXCHANGE_HEADER = b"x-mesh-exchange"
REDELIVERED_HEADER = b"x-mesh-redelivered"
REPAIRED_HEADER = b"x-mesh-repaired"
DEATHS_HEADER = b"x-mesh-deaths"
USER_HEADER = b"x-mesh-user-id"
CLUSTER_HEADER = b"x-mesh-cluster-id"
CONTENT_ID_HEADER = b"x-mesh-content-id"
CONTENT_BYTES_HEADER = b"x-mesh-content-bytes"
CONTENT_SHA256_HEADER = b"x-mesh-content-sha256"

DEAD_REASON_HEADER = b"x-mesh-dead-reason"
ATTEMPTS_HEADER = b"x-mesh-dead-attempts"
QUARANTINE_REASON_HEADER = b"x-mesh-quarantine-reason"
OFFSET_HEADER = b"x-mesh-log-offset"
KEY_HEADER = b"x-mesh-routing-key"
BATCH_HEADER = b"x-mesh-batch"
NUMBER_HEADER = b"x-mesh-entry"
IDENTITY_HEADER = b"x-mesh-identity"
PUBLISHED_HEADER = b"x-mesh-published"

DELIVERED = {
    PATH_HEADER: "cluster IDs of the sites that the message came through, with commas between",
    EXCHANGE_HEADER: "exchange of the mesh in which it was published",
    REDELIVERED_HEADER: "true: it may have been delivered before",
    REPAIRED_HEADER: "cluster ID of its origin, where `isthmus repair` sent it again",
    DEATHS_HEADER: "digest of the `x-death` with which it was published",
    USER_HEADER: "`user_id` that the publisher gave it",
    CLUSTER_HEADER: "`cluster_id` that the publisher gave it",
    CONTENT_ID_HEADER: "of a large message without its body: ID for `isthmus content get`",
    CONTENT_BYTES_HEADER: "bytes of that body, a number",
    CONTENT_SHA256_HEADER: "SHA-256 of that body, in hexadecimal digits",
}
"""Headers of messages that a site's applications get."""
PUT_ASIDE = {
    DEAD_REASON_HEADER: "reason why a dead letter could not be delivered",
    ATTEMPTS_HEADER: "number of attempts to deliver it",
    QUARANTINE_REASON_HEADER: "reason why a message was quarantined",
    OFFSET_HEADER: "place in the site's log; -1: it came over a link and stands in no log",
    KEY_HEADER: "routing key with which it was published",
    BATCH_HEADER: "name of its batch",
    NUMBER_HEADER: "its number in the batch, from 0",
    IDENTITY_HEADER: "identity by which the barrier knows it",
    PUBLISHED_HEADER: "time of publishing, in ms since 1970",
}
"""Further headers of messages in a site's dead letters and quarantine."""
_LONG_STRING = b"S"
_VALUE_AT = 5


def as_repaired(entry: Entry, origin: str) -> Entry:
    """Return the message as an entry of a repair batch. Raises MalformedProperties."""
    return entry._replace(properties=with_repaired(entry.properties, origin))


def with_repaired(properties: bytes, origin: str) -> bytes:
    """Return the properties with the message's origin added. Raises MalformedProperties."""
    added = field_table.entry(REPAIRED_HEADER, field_table.long_string(origin.encode()))
    return content_header.rewrite(properties, {}, added)


def message_origin(header: BatchHeader, entries: Sequence[Entry]) -> str:
    """Cluster ID of the site where the batch's messages were published."""
    is_repair = header.kind is BatchKind.REPAIR and entries
    repaired = repaired_of(entries[0].properties) if is_repair else ""
    return repaired or header.name.series.origin


def repaired_of(properties: bytes) -> str:
    """Cluster ID of the message's origin if a repair brought the message, else empty."""
    try:
        value = content_header.header(properties, REPAIRED_HEADER)
    except MalformedProperties:
        return ""
    if value is None or value[:1] != _LONG_STRING:
        return ""
    return value[_VALUE_AT:].decode(errors="replace")
