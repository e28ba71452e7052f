"""Make what the nodes of compose.yaml show to Prometheus: an authority, a certificate, a token.

Usage: make_certificates.py FOLDER NAME...; files that are good for another month stay.
"""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=825)
RENEWED_BEFORE = timedelta(days=30)


def is_good(folder: Path) -> bool:
    """Return True if all files are there, and the certificate does not expire soon."""
    names = ("ca.pem", "node.pem", "node.key", "admin.token")
    if not all((folder / name).exists() for name in names):
        return False
    certificate = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
    return certificate.not_valid_after_utc - datetime.now(UTC) > RENEWED_BEFORE


def make(folder: Path, names: list[str]) -> None:
    """Write the files. The authority's key is thrown away: who renews makes another authority."""
    began = datetime.now(UTC) - timedelta(minutes=5)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Isthmus compose")])
    builder = x509.CertificateBuilder().issuer_name(issuer).not_valid_before(began)
    builder = builder.not_valid_after(began + VALID)
    authority = (
        builder.subject_name(issuer)
        .serial_number(x509.random_serial_number())
        .public_key(authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .serial_number(x509.random_serial_number())
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(folder / "node.key", private, 0o600)
    _write(folder / "ca.pem", authority.public_bytes(serialization.Encoding.PEM), 0o644)
    _write(folder / "node.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    # Prometheus runs as another user of the same volume.
    _write(folder / "admin.token", secrets.token_hex(32).encode() + b"\n", 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=mode)
    path.write_bytes(content)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if not is_good(target):
        make(target, sys.argv[2:])
