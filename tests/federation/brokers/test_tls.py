"""TLS as a client: files that cannot be used are named, those that are renewed are taken up."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from federation.brokers.addresses import AmqpAddress, TlsUnusable
from federation.brokers.tls import NobodyTrusted, TlsFilesBroken, client_context
from federation.mesh import TlsFiles
from tests.certificates import Authority, replaced


def test_without_files_the_systems_authorities_are_trusted_and_names_are_checked() -> None:
    context = client_context(TlsFiles())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_flags == ssl.create_default_context().verify_flags


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nno\n"])
@pytest.mark.parametrize("which", ["ca", "certificate"])
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, which: str
) -> None:
    file = tmp_path / "x.pem"
    if content is not None:
        file.write_bytes(content)
    files = TlsFiles(ca=str(file)) if which == "ca" else TlsFiles("", str(file), str(file))
    with pytest.raises(TlsFilesBroken, match=r"x\.pem"):
        client_context(files)
    with pytest.raises(TlsUnusable, match=r"x\.pem"):
        _ = AmqpAddress("host", 5671, "/", "user", "secret", True, files).ssl_context


def test_a_key_with_a_passphrase_is_refused_and_asks_nobody(tmp_path: Path) -> None:
    pair = Authority("a").issues()
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    certificate, _ = pair.write(tmp_path, "relay")
    files = TlsFiles("", str(certificate), str(replaced(tmp_path / "locked.pem", locked)))
    with pytest.raises(TlsFilesBroken, match="nobody is here to give"):
        client_context(files)


def test_an_address_in_clear_has_no_context() -> None:
    assert AmqpAddress("host", 5672, "/", "user", "secret").ssl_context is None


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """All three, of two authorities that nobody else uses."""
    ca = replaced(tmp_path / "ca.pem", Authority("server's").certificate)
    certificate, key = Authority("clients'").issues().write(tmp_path, "relay")
    return TlsFiles(str(ca), str(certificate), str(key))


def test_files_that_stay_are_read_once(files: TlsFiles) -> None:
    assert client_context(files) is client_context(files)


def trusted(context: ssl.SSLContext) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))


def test_what_is_renewed_is_taken_up(files: TlsFiles) -> None:
    first = client_context(files)
    other = Authority("another")
    replaced(Path(files.ca), other.certificate)
    second = client_context(files)
    assert trusted(second) == {ssl.PEM_cert_to_DER_cert(other.certificate.decode())}
    assert trusted(first) != trusted(second)
    other.issues().write(Path(files.certificate).parent, "relay")
    assert client_context(files) is not second


def test_a_pair_that_is_half_renewed_waits_for_its_other_half(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "federation.brokers.tls")
    before = client_context(files)
    renewed = Authority("clients'").issues()
    replaced(Path(files.certificate), renewed.certificate)
    assert client_context(files) is before
    assert client_context(files) is before
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert files.certificate in warning.getMessage()
    replaced(Path(files.key), renewed.key)
    assert client_context(files) is not before
    assert [one.levelno for one in caplog.records] == [logging.WARNING, logging.INFO]


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_a_file_that_is_away_or_half_there_breaks_nothing(files: TlsFiles, which: str) -> None:
    before = client_context(files)
    file = Path(getattr(files, which))
    content = file.read_bytes()
    file.unlink()
    assert client_context(files) is before
    file.write_bytes(content[: len(content) // 2])
    assert client_context(files) is before
    file.write_bytes(content)
    assert client_context(files) is not before


def test_a_file_of_authorities_that_was_emptied_trusts_nobody(files: TlsFiles) -> None:
    client_context(files)
    replaced(Path(files.ca), b"# none any more\n")
    with pytest.raises(NobodyTrusted, match=r"ca\.pem"):
        client_context(files)


def test_the_systems_authorities_are_looked_at_anew_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, authority = tmp_path / "system.pem", Authority("the company's")
    replaced(system, Authority("former").certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(system))
    client_context(TlsFiles())
    replaced(system, authority.certificate)
    assert ssl.PEM_cert_to_DER_cert(authority.certificate.decode()) in trusted(
        client_context(TlsFiles())
    )
