"""Authorities of a test's own, and the certificates that they make."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HERE = "127.0.0.1"
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with what it hangs on, and its private key. PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """NAME.pem and NAME-key.pem, each replaced as a whole."""
        return (
            replaced(folder / f"{name}.pem", self.certificate),
            replaced(folder / f"{name}-key.pem", self.key),
        )


class Authority:
    """Whom a side may trust."""

    def __init__(self, name: str) -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        self._own = self._signed(
            x509.CertificateBuilder(self._name, self._name, self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 366 * DAY)
            .not_valid_after(now + 366 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
        )

    @property
    def certificate(self) -> bytes:
        """PEM."""
        return self._own.public_bytes(serialization.Encoding.PEM)

    def issues(
        self,
        host: str = HERE,
        *,
        name: str = "relay",
        begins: timedelta = -DAY,
        ends: timedelta = DAY,
    ) -> Pair:
        """For a server at that address, or a client of that common name; good from and until then,
        counted from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        # The host is not critical: Erlang 25 refuses a client's certificate in which it is.
        made = self._signed(
            x509.CertificateBuilder(self._name, _named(name), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        return Pair(
            made.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def _signed(self, builder: x509.CertificateBuilder) -> x509.Certificate:
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    """`signs`: certificates and lists of those that were revoked."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def replaced(file: Path, content: bytes) -> Path:
    """Write the file anew as those do who renew certificates: beside it, and then in its place."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_bytes(content)
    return temporary.replace(file)
