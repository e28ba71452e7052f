"""Keys of sites, and batches that are signed with them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.signing_keys import public_key_text
from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Series
from relay.batches.format import seal
from relay.batches.signature import Signer

MESH = "acme"


@cache
def private_key(site: str) -> Ed25519PrivateKey:
    """Always the same for the same word, so that a test that fails can be repeated."""
    return Ed25519PrivateKey.from_private_bytes(site.encode().ljust(32, b".")[:32])


def public_key(site: str) -> str:
    """As the mesh file has it."""
    return public_key_text(private_key(site).public_key())


def signer(site: str, mesh: str = MESH) -> Signer:
    return Signer.of(mesh, private_key(site))


def signed_batch(
    sequence: int = 0,
    *,
    origin: str = "paris",
    by: Signer | None = None,
    signs: bool = True,
    exchange: str = "orders",
    kind: BatchKind = BatchKind.MESSAGES,
    path: tuple[str, ...] = (),
) -> tuple[BatchHeader, bytes]:
    """A batch of two messages of `origin`, signed `by` it unless told; a `path` from it on."""
    name = BatchName(Series(origin, b"incarn-1", exchange, 0, ()), sequence)
    header = BatchHeader(
        kind, name, sequence, (), "r1", 0, 0, 0, 0, 9, 9, path or (origin,), format=2
    )  # fmt: skip
    entries = [Entry(bytes([n]) * 16, b"order.new", b"\0\0", b"body", 9) for n in range(2)]
    return seal(header, entries, (by or signer(origin)) if signs else None)


def resealed(header: BatchHeader, **otherwise: object) -> bytes:
    """The batch altered, its digest right again, and its fields, the signature among them, as they
    were.
    """
    entries = [Entry(bytes([n]) * 16, b"order.new", b"\0\0", b"body", 9) for n in range(2)]
    bare = replace(header, total_messages=0, total_bytes=0, entry_count=0, byte_count=0)
    return seal(replace(bare, **otherwise), entries)[1]  # type: ignore[arg-type]
