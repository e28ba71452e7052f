"""The origin's signature of a batch, in a field of the header, and the keys that check it.

::

    field 1       8  id of the key (`federation.signing_keys.key_id`)
                 64  Ed25519 signature of the statement
    statement        "isthmus batch 1", a zero byte
                  1  length, the name of the mesh
                  4  the magic and the format's number
                     the header, from its kind up to the field
                 32  SHA-256 of the block

The signature is the header's last field, so that the statement covers all of the origin's header.
The path is left out, since every site appends to it; so is the digest, which follows from the rest
and has half the bits that a forger should have to find.

A signature proves who packed the batch. Whether that site may send to the exchange is checked
besides: a branch whose key was stolen is still only that branch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from federation.mesh import Mesh, SigningRule, Unsigned
from federation.signing_keys import KEY_ID_BYTES, key_id, parse_public_key
from relay.batches.batch import BatchHeader, BatchKind, HeaderField
from relay.batches.format import BadBatch, signed_parts

SIGNATURE_FIELD = 1
SIGNATURE_BYTES = 64
_CONTEXT = b"isthmus batch 1\0"


class NotAuthentic(BadBatch):
    """The origin did not send these bytes: altered on the way, or made by another. No copy is any
    better.
    """


class OriginUnknown(Exception):
    """The mesh file cannot tell if the batch is its origin's: a newer file may. `reason` has
    details.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _statement(mesh: str, header: bytes, block: bytes | memoryview) -> bytes:
    name = mesh.encode()
    return b"".join((_CONTEXT, bytes([len(name)]), name, header, hashlib.sha256(block).digest()))


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs the batches of one site. Signers with the same key are equal."""

    mesh: str
    id: bytes
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, mesh: str, key: Ed25519PrivateKey) -> Signer:
        return cls(mesh, key_id(key.public_key()), key)

    def sign(self, header: bytes, block: bytes) -> HeaderField:
        """Make the signature field over the header (from the magic on) and the block."""
        return HeaderField(
            SIGNATURE_FIELD, self.id + self._key.sign(_statement(self.mesh, header, block))
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """Keys of a site, and the exchanges to which it may send."""

    keys: Mapping[bytes, Ed25519PublicKey]
    """Public keys by key ID."""
    exchanges: frozenset[str]
    repairs: bool
    """True if the site may send again messages that others published."""


@dataclass(frozen=True, slots=True)
class Authenticity:
    """Checks batches against a mesh file and the former files kept. `origins` are by cluster ID."""

    mesh: str
    is_asked: bool
    takes_unsigned: bool
    origins: Mapping[str, Origin]
    revoked: frozenset[bytes] = frozenset()
    """IDs of revoked keys."""

    def check(self, header: BatchHeader, data: bytes | memoryview) -> None:
        """Raise NotAuthentic or OriginUnknown unless the origin sent the batch."""
        if not self.is_asked:
            return
        series = header.name.series
        signature = _signature_of(header)
        if signature is None:
            if self.takes_unsigned:
                return
            raise NotAuthentic(f"{series.origin!r} has not signed it, and this mesh signs")
        wanted = signature[:KEY_ID_BYTES]
        if wanted in self.revoked:
            raise NotAuthentic(f"the key {wanted.hex()} of {series.origin!r} is revoked")
        origin = self.origins.get(series.origin)
        if origin is None:
            raise OriginUnknown(f"{series.origin!r} is no site of this mesh file")
        key = origin.keys.get(wanted)
        if key is None:
            raise OriginUnknown(
                f"{series.origin!r} signs with the key {wanted.hex()}, which this mesh file does "
                "not have"
            )
        signed_header, block = signed_parts(data, header)
        try:
            key.verify(signature[KEY_ID_BYTES:], _statement(self.mesh, signed_header, block))
        except InvalidSignature:
            raise NotAuthentic(f"the signature is not that of {series.origin!r}") from None
        if header.kind is BatchKind.REPAIR:
            if not origin.repairs:
                raise OriginUnknown(f"`repairs_from` of this mesh file lacks {series.origin!r}")
        elif series.exchange and series.exchange not in origin.exchanges:
            # Also an exchange that no file here has: once a file has it, these batches are
            # delivered.
            raise OriginUnknown(
                f"{series.origin!r} is not among those that may send to {series.exchange!r} by "
                "this mesh file"
            )


def _signature_of(header: BatchHeader) -> bytes | None:
    """Return the signature, or None if there is none. Raises NotAuthentic for a malformed
    signature.
    """
    found = [n for n, each in enumerate(header.fields) if each.number == SIGNATURE_FIELD]
    if not found:
        return None
    value = header.fields[-1].value
    if found != [len(header.fields) - 1] or len(value) != KEY_ID_BYTES + SIGNATURE_BYTES:
        raise NotAuthentic("its signature has another place or size than a signature has")
    return value


def authenticity(mesh: Mesh, kept: Iterable[Mesh] = ()) -> Authenticity:
    """Make the check of batches for a mesh file. `kept` are former files, in whose time sites sent
    batches that may still be on their way: their sites, keys and exchanges are still believed,
    except keys that are revoked now.
    """
    signing = [mesh, *(former for former in kept if former.signing is mesh.signing)]
    origins = {}
    for cluster_id in dict.fromkeys(id_ for each in signing for id_ in each.cluster_ids):
        files = [
            (each, each.cluster_ids[cluster_id])
            for each in signing
            if cluster_id in each.cluster_ids
        ]
        keys = [
            parse_public_key(key) for each, name in files for key in each.sites[name].public_keys
        ]
        origins[cluster_id] = Origin(
            {key_id(key): key for key in keys},
            frozenset(
                exchange.name
                for each, name in files
                for exchange in each.exchanges.values()
                if exchange.leaves(name)
            ),
            any(each.repairs_for_others(name) for each, name in files),
        )
    return Authenticity(
        mesh.name,
        mesh.signing is not SigningRule.NONE,
        mesh.unsigned is Unsigned.ACCEPT,
        origins,
        frozenset(key_id(parse_public_key(key)) for key in mesh.revoked_keys),
    )
