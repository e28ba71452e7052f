"""TLS as a client: whom to trust, and which certificate to show.

The server's certificate and its host name are always checked, and TLS is 1.2 or newer: nothing in
the mesh file can say otherwise.
"""

from __future__ import annotations

import ssl
import sys
from functools import lru_cache
from pathlib import Path

from federation.brokers.renewed import NobodyTrusted, RenewedContext, TlsFilesBroken
from federation.mesh import TlsFiles


class ClientContext(ssl.SSLContext):
    """Knows what it was made from, for whoever has to say why a connection came to nothing."""

    files: TlsFiles


def client_context(files: TlsFiles) -> ClientContext:
    """Checks the server's certificate and host name. What is renewed on disk is taken up by the
    next call; files that cannot be used just now are no reason to fail if they could be before.

    Without `ca`, the system's authorities are trusted, and those that SSL_CERT_FILE names. Raises
    TlsFilesBroken.
    """
    system = ssl.get_default_verify_paths()
    trusted = (files.ca,) if files.ca else (system.cafile or "", system.capath or "")
    return _followed(files, trusted).present()


@lru_cache(maxsize=256)
def _followed(files: TlsFiles, trusted: tuple[str, ...]) -> RenewedContext[ClientContext]:
    paths = (*trusted, files.certificate, files.key)
    return RenewedContext(tuple(filter(None, paths)), lambda: _made_of(files))


def _made_of(files: TlsFiles) -> ClientContext:
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)  # which checks certificate and host name
    context.files = files
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if sys.version_info >= (3, 13):  # as Python's own default context from then on
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    try:
        if files.ca:
            context.load_verify_locations(files.ca)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except OSError as error:  # SSLError is one
        wrong = f"tls: {files.ca}: no certificates of authorities: {error}"
        raise (NobodyTrusted if _is_blank(files.ca) else TlsFilesBroken)(wrong) from error
    if files.certificate:
        load_pair(context, files.certificate, files.key)
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Show this certificate from now on. Raises TlsFilesBroken."""
    try:
        # Without this, a key with a passphrase asks for it at the terminal.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise TlsFilesBroken(
            f"tls: {certificate} and {key}: no certificate and its key: {error}"
        ) from error


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, which nobody is here to give: write it without one")


def _is_blank(path: str) -> bool:
    """A file that is there, whole, and has no certificate in it."""
    try:
        return b"-----BEGIN" not in Path(path).read_bytes()
    except OSError:
        return False
