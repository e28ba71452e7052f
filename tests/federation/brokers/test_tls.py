"""TLS as a client: files that cannot be used are named."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from federation.brokers.addresses import AmqpAddress, TlsUnusable
from federation.brokers.tls import TlsFilesBroken, client_context
from federation.mesh import TlsFiles


def test_without_files_the_systems_authorities_are_trusted_and_names_are_checked() -> None:
    context = client_context(TlsFiles())
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


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


def test_an_address_in_clear_has_no_context() -> None:
    assert AmqpAddress("host", 5672, "/", "user", "secret").ssl_context is None
