"""Keys as OpenSSL writes them, and all that is none."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from federation.signing_keys import (
    KEY_ID_BYTES,
    BadPublicKey,
    PrivateKeyUnusable,
    key_id,
    load_private_key,
    parse_public_key,
    private_key_pem,
    public_key_text,
)

PRIVATE = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = public_key_text(PRIVATE.public_key())
PEM = private_key_pem(PRIVATE)


def der(public: object) -> str:
    raw = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return base64.b64encode(raw).decode()


def test_a_public_key_is_read_as_it_is_written() -> None:
    assert public_key_text(parse_public_key(PUBLIC)) == PUBLIC
    assert len(key_id(parse_public_key(PUBLIC))) == KEY_ID_BYTES


def test_what_openssl_makes_is_understood(tmp_path: Path) -> None:
    made = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", made], check=True)
    told = subprocess.run(
        ["openssl", "pkey", "-in", made, "-pubout"], check=True, capture_output=True, text=True
    )
    private = load_private_key(f"file:{made}", {})
    assert public_key_text(private.public_key()) == told.stdout.splitlines()[1]


PRIVATE_LINE = PEM.decode().splitlines()[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no public key"),
        ("paris", "no base64"),
        ("AAAA", "no public key"),
        ("-----BEGIN PUBLIC KEY-----", "write the line between"),
        (PUBLIC[:-8] + "=", "no public key"),
        (PRIVATE_LINE, "this is a private key, which everybody who reads the file has now"),
        (der(ec.generate_private_key(ec.SECP256R1()).public_key()), "another kind than Ed25519"),
    ],
)
def test_what_is_no_public_key_is_refused_and_not_quoted(text: str, said: str) -> None:
    with pytest.raises(BadPublicKey, match=said) as refused:
        parse_public_key(text)
    assert not text or text not in str(refused.value)


@pytest.mark.parametrize("content", [PEM.decode(), PRIVATE_LINE, f"  {PRIVATE_LINE}\n"])
def test_a_private_key_may_stand_in_the_environment(content: str) -> None:
    found = load_private_key("env:KEY", {"KEY": content})
    assert found.private_bytes_raw() == PRIVATE.private_bytes_raw()


def _encrypted() -> str:
    return PRIVATE.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    ).decode()


def _rsa() -> str:
    key = rsa.generate_private_key(65537, 2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is not set"),
        ("nonsense", "it is no private key in PEM"),
        ("-----BEGIN PRIVATE KEY-----\nnonsense", "it is no private key in PEM"),
        (PUBLIC, "it is no private key in PEM"),
        (_encrypted(), "it has a passphrase"),
        (_rsa(), "another kind than Ed25519"),
    ],
)
def test_what_is_no_private_key_is_told_without_being_quoted(content: str, said: str) -> None:
    with pytest.raises(PrivateKeyUnusable, match=said) as refused:
        load_private_key("env:KEY", {"KEY": content})
    assert "the environment variable KEY" in str(refused.value)
    told = f"{refused.value} {refused.value.__cause__} {refused.value.__context__}"
    assert all(line not in told for line in content.splitlines() if len(line) > 8)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrivateKeyUnusable, match=f"the file {tmp_path}/none.pem: No such file"):
        load_private_key(f"file:{tmp_path}/none.pem", {})
    with pytest.raises(PrivateKeyUnusable, match="neither env:NAME nor file:PATH"):
        load_private_key(PRIVATE_LINE, {})
