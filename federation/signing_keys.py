"""Keys with which sites sign their batches: Ed25519, in OpenSSL's forms.

A public key stands in the mesh file, as the single line between BEGIN and END PUBLIC KEY. A private
key is a PEM file (PKCS #8, without passphrase), or the same text in an environment variable, there
also without its BEGIN and END lines. `isthmus keygen` and `openssl genpkey` make both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_der_public_key,
    load_pem_private_key,
)

from federation.wording import WrongText

KEY_ID_BYTES = 8
_LIKE = "write what `isthmus keygen` prints, or the line of `openssl pkey -pubout`"


class BadPublicKey(WrongText):
    """An invalid public key. Neither `wrong` nor `mend` quotes it: it may be a private one."""

    def __init__(self, wrong: str, mend: str = _LIKE) -> None:
        super().__init__(wrong, mend)


class PrivateKeyUnusable(Exception):
    """A site's private key is missing or invalid. Nothing of it is quoted."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"no private key in {where}: {reason}")


def parse_public_key(text: str) -> Ed25519PublicKey:
    """Parse the line of a public key. Raises BadPublicKey."""
    try:
        der = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        if "BEGIN" in text:
            raise BadPublicKey(
                "this has its BEGIN and END lines", "write the line between"
            ) from None
        raise BadPublicKey("this is no public key: it is no base64") from None
    if _is_private(der):
        raise BadPublicKey(
            "this is a private key, which everybody who reads the file has now",
            "make another pair with `isthmus keygen`, and write its public key here",
        )
    try:
        key = load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm):
        raise BadPublicKey("this is no public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadPublicKey("this public key is of another kind than Ed25519")
    return key


def _is_private(der: bytes) -> bool:
    try:
        load_der_private_key(der, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def public_key_text(key: Ed25519PublicKey) -> str:
    """Return the line of a public key for a mesh file."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()


def private_key_pem(key: Ed25519PrivateKey) -> bytes:
    """Return the content of a private key's file, which only the site's node may read."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def key_id(key: Ed25519PublicKey) -> bytes:
    """Return the ID that names a signature's key: the first bytes of the key's SHA-256."""
    return hashlib.sha256(key.public_bytes_raw()).digest()[:KEY_ID_BYTES]


def load_private_key(where: str, environ: Mapping[str, str]) -> Ed25519PrivateKey:
    """Load the key that `env:NAME` or `file:PATH` names. Raises PrivateKeyUnusable."""
    if where.startswith("env:"):
        name = where.removeprefix("env:")
        place = f"the environment variable {name}"
        if not environ.get(name):
            raise PrivateKeyUnusable(place, "it is not set")
        return _private_key(environ[name].encode(), place)
    if where.startswith("file:"):
        path = Path(where.removeprefix("file:"))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise PrivateKeyUnusable(f"the file {path}", error.strerror or str(error)) from error
        return _private_key(content, f"the file {path}")
    raise PrivateKeyUnusable("the mesh file", "`private_key` is neither env:NAME nor file:PATH")


def _private_key(content: bytes, place: str) -> Ed25519PrivateKey:
    try:
        if b"-----BEGIN" in content:
            key = load_pem_private_key(content, password=None)
        else:
            key = load_der_private_key(base64.b64decode(content.strip(), validate=True), None)
    except TypeError:
        # Not `from error`, here and below: its text may quote the content.
        raise PrivateKeyUnusable(place, "it has a passphrase: take that off") from None
    except (ValueError, UnsupportedAlgorithm):  # binascii.Error is a ValueError
        raise PrivateKeyUnusable(place, "it is no private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PrivateKeyUnusable(place, "it is of another kind than Ed25519")
    return key
