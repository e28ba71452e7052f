"""Identity of a message, and hash of its content.

An identity is 16 bytes. The packer makes one (`uuid7`) for a message that has none: the message
then differs from every other, except its own copies by other paths.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable
from enum import StrEnum
from hashlib import blake2b
from struct import Struct

IDENTITY_BYTES = 16
CONTENT_BYTES = 16

_JOIN_UP_TO = 64 * 1024
_lengths = Struct(">IBBQ").pack
"""Lengths of key, content type, content encoding and body, so that no two messages hash the same
bytes. AMQP short strings are at most 255 bytes."""
_URN = b"urn:uuid:"
_UUID_CHARACTERS = 36
_URN_CHARACTERS = len(_URN) + _UUID_CHARACTERS


class IdentityForm(StrEnum):
    """Source of an exchange's identities (`identity:` of the mesh file)."""

    UUID = "uuid"
    MESSAGE_ID = "message_id"
    HEADER = "header"
    CONTENT = "content"
    NONE = "none"


IdentityOf = Callable[[bytes | None, bytes | None, bytes], bytes | None]
"""Function (message_id, value of the named header, content hash) -> identity, or None for none."""


def content_hash(
    routing_key: bytes, body: bytes, content_type: bytes | None, content_encoding: bytes | None
) -> bytes:
    """Return 16 bytes over the content: routing key, body, content type and encoding.

    Other properties do not count: a publisher that sends again sets a new timestamp. An absent
    property equals an empty one.
    """
    kind = content_type or b""
    encoding = content_encoding or b""
    head = _lengths(len(routing_key), len(kind), len(encoding), len(body))
    if len(body) <= _JOIN_UP_TO:
        return blake2b(
            b"".join((head, routing_key, kind, encoding, body)), digest_size=CONTENT_BYTES
        ).digest()
    hasher = blake2b(b"".join((head, routing_key, kind, encoding)), digest_size=CONTENT_BYTES)
    hasher.update(body)  # not copied: it may be 15 MiB
    return hasher.digest()


def uuid_of(message_id: bytes | None) -> bytes | None:
    """Return the 16 bytes of a UUID, or None for any other text.

    A UUID has canonical form (36 characters), or that of a URN (RFC 9562): `urn:uuid:` and these
    36; either case. RabbitMQ 4 gives an AMQP 1.0 message-id of type uuid to AMQP 0-9-1 as a URN.
    """
    if message_id is None:
        return None
    characters = len(message_id)
    if characters != _UUID_CHARACTERS:
        if characters != _URN_CHARACTERS or message_id[: len(_URN)].lower() != _URN:
            return None
        message_id = message_id[len(_URN) :]
    if not 45 == message_id[8] == message_id[13] == message_id[18] == message_id[23]:  # "-"
        return None
    try:
        found = unhexlify(message_id.replace(b"-", b""))
    except ValueError:
        return None
    return found if len(found) == IDENTITY_BYTES else None


def text_identity(text: bytes | None) -> bytes | None:
    """Return 16 bytes for a string, or None for an absent or empty one."""
    if not text:
        return None
    return blake2b(text, digest_size=IDENTITY_BYTES).digest()


def identity_function(form: IdentityForm) -> IdentityOf:
    """Return the function of an exchange's form, chosen once and not per message."""
    return _FUNCTIONS[form]


def uuid7(now_ms: int, random_bytes: bytes) -> bytes:
    """Return a UUIDv7 as 16 bytes: 48 bits of milliseconds since 1970, 74 random bits.

    `random_bytes` are 10 bytes, new for each call. Raises ValueError for another length.
    """
    if len(random_bytes) != 10:
        raise ValueError(f"a UUIDv7 takes 10 random bytes, not {len(random_bytes)}")
    chance = int.from_bytes(random_bytes)
    return (
        (now_ms & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (chance >> 62 & 0xFFF) << 64
        | 0b10 << 62
        | chance & 0x3FFF_FFFF_FFFF_FFFF
    ).to_bytes(16)


def scope_prefix(exchange: str, origin: str | None) -> bytes:
    """Return 8 bytes for the scope of an identity: the exchange, and the `origin` (a cluster ID)
    for `scope: origin`. Made once a flow.
    """
    name = exchange.encode()
    text = len(name).to_bytes(4) + name
    if origin is not None:
        text += b"@" + origin.encode()
    return blake2b(text, digest_size=8).digest()


def _by_uuid(message_id: bytes | None, header: bytes | None, content: bytes) -> bytes | None:
    return uuid_of(message_id)


def _by_message_id(message_id: bytes | None, header: bytes | None, content: bytes) -> bytes | None:
    return text_identity(message_id)


def _by_header(message_id: bytes | None, header: bytes | None, content: bytes) -> bytes | None:
    return text_identity(header)


def _by_content(message_id: bytes | None, header: bytes | None, content: bytes) -> bytes | None:
    return content


def _by_nothing(message_id: bytes | None, header: bytes | None, content: bytes) -> bytes | None:
    return None


_FUNCTIONS: dict[IdentityForm, IdentityOf] = {
    IdentityForm.UUID: _by_uuid,
    IdentityForm.MESSAGE_ID: _by_message_id,
    IdentityForm.HEADER: _by_header,
    IdentityForm.CONTENT: _by_content,
    IdentityForm.NONE: _by_nothing,
}
