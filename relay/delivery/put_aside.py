"""Dead letters and quarantined messages, read back from their queues for operators.

A message that is put aside carries headers with the reason, the path and its place in the mesh, so
that an operator can send the message again, past the same barrier. Pure; `relay.operator.mending`
does the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from relay.batches.batch import BatchName, Entry
from relay.batches.mesh_headers import (
    ATTEMPTS_HEADER,
    BATCH_HEADER,
    DEAD_REASON_HEADER,
    EXCHANGE_HEADER,
    FORGEABLE_PREFIX,
    IDENTITY_HEADER,
    KEY_HEADER,
    NUMBER_HEADER,
    PATH_HEADER,
    PUBLISHED_HEADER,
    QUARANTINE_REASON_HEADER,
    repaired_of,
    with_repaired,
)
from relay.bulk_amqp.content_header import QUORUM_QUEUE_HEADERS, header, without_headers
from relay.bulk_amqp.errors import MalformedProperties
from relay.bulk_amqp.frame_reader import Delivery
from relay.delivery.properties import text_field


class Aside(StrEnum):
    """Queues of a site that hold undelivered messages; the values are words of the commands."""

    DEAD_LETTERS = "dead-letters"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class AsideOrigin:
    """Place of a message in the mesh, by which the barrier and the ledger know the message."""

    name: BatchName
    number: int
    """Number among the entries of the batch."""
    path: tuple[str, ...]
    identity: bytes
    published_ms: int


@dataclass(frozen=True, slots=True)
class PutAside:
    """Message in such a queue. `origin` is None for messages that the mesh did not put there or
    cannot read: an operator can view, export and drop these, not send them again.
    """

    tag: int
    """Delivery tag, for whoever consumes the queue."""
    reason: str
    attempts: int
    exchange: str
    routing_key: bytes
    origin: AsideOrigin | None
    properties: bytes
    """Properties as sent, without the headers added when the message was put aside."""
    body: bytes

    @property
    def id(self) -> str:
        """Identifier by which a person names the message; always the same."""
        if self.origin is not None:
            key = f"{self.origin.name} {self.origin.number}".encode()
        else:
            key = b"%s\0%s\0%s" % (self.reason.encode(), self.properties, self.body)
        return blake2b(key, digest_size=5).hexdigest()


def origin_fields(entry: Entry, name: BatchName, number: int, path: tuple[str, ...]) -> bytes:
    """Encode the headers that identify the message, as entries of a header table."""
    return (
        text_field(EXCHANGE_HEADER, name.series.exchange.encode())
        + text_field(KEY_HEADER, entry.routing_key)
        + text_field(PATH_HEADER, ",".join(path).encode())
        + text_field(BATCH_HEADER, str(name).encode())
        + text_field(NUMBER_HEADER, str(number).encode())
        + text_field(IDENTITY_HEADER, entry.identity.hex().encode())
        + text_field(PUBLISHED_HEADER, str(entry.published_ms).encode())
    )


def put_aside(delivery: Delivery) -> PutAside:
    """Read a message from the queue. Takes anything: others may publish there too."""
    tag, _, _, _, properties, body = delivery
    try:
        reason = _text(properties, DEAD_REASON_HEADER) or _text(
            properties, QUARANTINE_REASON_HEADER
        )
        return PutAside(
            tag,
            reason or "not put here by the mesh",
            int(_text(properties, ATTEMPTS_HEADER) or 0),
            _text(properties, EXCHANGE_HEADER),
            _bytes(properties, KEY_HEADER),
            _origin(properties),
            _as_sent(properties),
            body,
        )
    except (MalformedProperties, ValueError) as error:
        why = f"not put here by the mesh: {error}"
        return PutAside(tag, why, 0, "", b"", None, properties, body)


def _as_sent(properties: bytes) -> bytes:
    """Properties without the added headers, except the mark of a repair, which was there before."""
    sent = without_headers(properties, (FORGEABLE_PREFIX,), QUORUM_QUEUE_HEADERS)
    whose = repaired_of(properties)
    return with_repaired(sent, whose) if whose else sent


def _origin(properties: bytes) -> AsideOrigin | None:
    batch = _text(properties, BATCH_HEADER)
    identity = bytes.fromhex(_text(properties, IDENTITY_HEADER))
    if not batch or not identity:
        return None
    return AsideOrigin(
        BatchName.parse(batch),
        int(_text(properties, NUMBER_HEADER)),
        tuple(_text(properties, PATH_HEADER).split(",")),
        identity,
        int(_text(properties, PUBLISHED_HEADER)),
    )


def _text(properties: bytes, name: bytes) -> str:
    return _bytes(properties, name).decode(errors="replace")


def _bytes(properties: bytes, name: bytes) -> bytes:
    """Value of a text header; empty if there is none, or the header holds no text."""
    value = header(properties, name)
    return value[5:] if value is not None and value[:1] == b"S" else b""
