"""What was put aside at a site, read back: dead letters and quarantine, as operators see them.

Whoever puts a message aside adds headers that say why, which way it came, and where it stands: so
it can be sent again as what it was, past the same barrier. Pure; `mending` does the work.
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
)
from relay.batches.repaired import repaired_of, with_repaired
from relay.bulk_amqp.content_header import QUORUM_QUEUE_HEADERS, header, without_headers
from relay.bulk_amqp.errors import MalformedProperties
from relay.bulk_amqp.frame_reader import Delivery
from relay.delivery.properties import text_field


class Aside(StrEnum):
    """The two queues of a site that hold what was not delivered; the words of the commands."""

    DEAD_LETTERS = "dead-letters"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class AsideOrigin:
    """Where a message stands in the mesh: what the barrier and the ledger know it by."""

    name: BatchName
    number: int
    """Among the entries of the batch."""
    path: tuple[str, ...]
    identity: bytes
    published_ms: int


@dataclass(frozen=True, slots=True)
class PutAside:
    """One message of such a queue. `origin` is None for what is no message of the mesh, or none
    that could be read: that can be looked at, exported and dropped, not sent again.
    """

    tag: int
    """Of this delivery to whoever looks."""
    reason: str
    attempts: int
    exchange: str
    routing_key: bytes
    origin: AsideOrigin | None
    properties: bytes
    """As sent: without what was added when it was put aside."""
    body: bytes

    @property
    def id(self) -> str:
        """The same whenever one looks; for a person to name it by."""
        if self.origin is not None:
            told = f"{self.origin.name} {self.origin.number}".encode()
        else:
            told = b"%s\0%s\0%s" % (self.reason.encode(), self.properties, self.body)
        return blake2b(told, digest_size=5).hexdigest()


def origin_fields(entry: Entry, name: BatchName, number: int, path: tuple[str, ...]) -> bytes:
    """Headers that say what the message was: encoded entries of a header table."""
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
    """What the queue has handed out. Takes anything: somebody else may have put it there."""
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
    """Without what was added; that a repair brought it was not."""
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
    """A text header's value; empty if there is none, or it is no text."""
    value = header(properties, name)
    return value[5:] if value is not None and value[:1] == b"S" else b""
