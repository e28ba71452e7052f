"""Further keys of the barrier besides a message's own, and the form of places."""

from __future__ import annotations

from hashlib import blake2b


def second_key(key: bytes, content: bytes) -> bytes:
    """Return the key of a CONFLICT: the scope of `key`, and a hash of identity and content."""
    return key[:-16] + blake2b(key[-16:] + content, digest_size=16, person=b"conflict").digest()


def repair_key(key: bytes) -> bytes:
    """Return the key of a repair of the message remembered under `key`."""
    return key[:-16] + blake2b(key[-16:], digest_size=16, person=b"repair").digest()


def place_prefix(batch_name: bytes) -> bytes:
    """Return 8 bytes that stand for a batch (by its encoded name) in places; made once a batch."""
    return blake2b(batch_name, digest_size=8).digest()


def places_of(prefix: bytes, begin: int, end: int) -> list[bytes]:
    """Return the places of entries begin..end of a batch, 10 bytes each."""
    return [prefix + index.to_bytes(2) for index in range(begin, end)]
