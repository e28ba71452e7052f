"""Properties of a delivered message: the sender's, byte for byte, with the mesh's additions.

Added: header `x-mesh-exchange` (with `user_id`, how a packer recognises its own site's deliveries
when they come round), header `x-mesh-path` (cluster IDs with commas between), `user_id` (the
relay's; the broker refuses forgeries), `cluster_id` (the origin), and header `x-mesh-redelivered`
where an earlier publish may have succeeded. `expiration` becomes the time left.

A message that was dead-lettered before its publication brings its `x-death` along. Header
`x-mesh-deaths` then holds a digest of `x-death`, by which a packer tells such a death from a later
one, at its own site after delivery.

The packer has taken away the publisher's own `user_id`, `cluster_id` and `x-mesh-*`. A common
message is stamped by cutting its bytes once; only properties with an app_id or an expiration are
walked.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from relay import core
from relay.batches.mesh_headers import (
    DEATHS_HEADER,
    EXCHANGE_HEADER,
    PATH_HEADER,
    REDELIVERED_HEADER,
)
from relay.bulk_amqp.content_header import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    EXPIRATION,
    HEADERS,
    USER_ID,
    header,
    rewrite,
)
from relay.bulk_amqp.errors import MalformedProperties
from relay.bulk_amqp.field_table import entry, long_string

_WALKED = EXPIRATION | USER_ID | APP_ID | CLUSTER_ID | 0x0003
"""Flags of properties behind the place of the common additions, and the unused bits."""

DEATH_HEADER = b"x-death"
"""Header that the broker writes into dead letters, changed by each death."""


MAX_EXPIRATION_MS = (1 << 32) - 1
"""Longest expiration: RabbitMQ closes the channel of a publisher that exceeds the limit."""


def remaining_ms(deadline_ms: int, now_ms: int) -> int | None:
    """Milliseconds left, capped at a broker's limit; 0 or less: expired; None: no expiration."""
    return min(deadline_ms - now_ms, MAX_EXPIRATION_MS) if deadline_ms else None


def text_field(name: bytes, value: bytes) -> bytes:
    """Encode a header-table entry with a long string."""
    return bytes([len(name)]) + name + b"S" + len(value).to_bytes(4, "big") + value


def true_field(name: bytes) -> bytes:
    """Encode a header-table entry with the value true."""
    return bytes([len(name)]) + name + b"t\x01"


def deaths(properties: bytes) -> bytes | None:
    """Value of `x-mesh-deaths` for these properties: a digest of `x-death`, tagged, or None if
    there is no `x-death`. Raises MalformedProperties.
    """
    death = header(properties, DEATH_HEADER)
    return None if death is None else death_digest(death)


def death_digest(death: bytes) -> bytes:
    """Value of `x-mesh-deaths` for an `x-death` with this (tagged) value."""
    return long_string(blake2b(death, digest_size=8).hexdigest().encode())


class DeliveryStamp:
    """Stamp of all messages that came by one path; the additions are encoded once.

    `user` is the user as which the deliverer's connection has authenticated.
    """

    __slots__ = ("_added", "_cluster_id", "_flagged", "_heads", "_tail", "_user", "native")

    def __init__(self, exchange: str, path: tuple[str, ...], user: str) -> None:
        self._added = text_field(EXCHANGE_HEADER, exchange.encode()) + text_field(
            PATH_HEADER, ",".join(path).encode()
        )
        self._flagged = self._added + true_field(REDELIVERED_HEADER)
        self._user = user.encode()
        self._cluster_id = path[0].encode()
        self._tail = (
            bytes([len(self._user)]) + self._user + bytes([len(self._cluster_id)])
        ) + self._cluster_id
        self._heads: dict[bytes, bytes] = {}
        """Flags -> flags and headers, for messages without content type, encoding or headers."""
        self.native: Any = None
        """`isthmus_core.Stamp`, which does as `apply` to whole runs, or None without the core."""
        if core.native is not None:
            self.native = core.native.Stamp(self._added, self._user, self._cluster_id)

    def apply(self, properties: bytes, *, flagged: bool, left_ms: int | None = None) -> bytes:
        """Return the delivered message's raw properties.

        `left_ms`: remainder of an expiration, None if the message has none. Raises
        MalformedProperties for bytes that are no properties.
        """
        if not flagged and left_ms is None:
            head = self._heads.get(properties[:2])
            if head is not None:
                return b"".join((head, properties[2:], self._tail))
        added = self._flagged if flagged else self._added
        if DEATH_HEADER in properties:
            died = deaths(properties)
            if died is not None:
                added += entry(DEATHS_HEADER, died)
        flags = int.from_bytes(properties[:2], "big")
        if flags & _WALKED or left_ms is not None:
            changes: dict[int, bytes | int | None] = {
                EXPIRATION: None if left_ms is None else str(left_ms).encode(),
                USER_ID: self._user,
                CLUSTER_ID: self._cluster_id,
            }
            return rewrite(properties, changes, added)
        try:
            at = 2
            if flags & CONTENT_TYPE:
                at += 1 + properties[at]
            if flags & CONTENT_ENCODING:
                at += 1 + properties[at]
        except IndexError:
            raise MalformedProperties("a property is cut short", at) from None
        end, table = at, b""
        if flags & HEADERS:
            end = at + 4 + int.from_bytes(properties[at : at + 4], "big")
            table = properties[at + 4 : end]
        if end > len(properties) or len(properties) < 2:
            raise MalformedProperties("the header table is cut short", at)
        if end == 2 and not flagged:
            self._heads[properties[:2]] = b"".join(
                (
                    (flags | HEADERS | USER_ID | CLUSTER_ID).to_bytes(2, "big"),
                    len(added).to_bytes(4, "big"),
                    added,
                )
            )
        return b"".join(
            (
                (flags | HEADERS | USER_ID | CLUSTER_ID).to_bytes(2, "big"),
                properties[2:at],
                (len(table) + len(added)).to_bytes(4, "big"),
                table,
                added,
                properties[end:],
                self._tail,
            )
        )
