"""TLS as a client: whom to trust, and which certificate to show."""

from __future__ import annotations

import ssl
from functools import lru_cache

from federation.mesh import TlsFiles


class TlsFilesBroken(Exception):
    """A PEM file cannot be read or used; the text names it."""


@lru_cache(maxsize=256)
def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Checks the server's certificate and host name. Files are read once a process, so that a
    file that is being replaced breaks no connection: a renewed one is for the next start.

    Without `ca`, the system's authorities are trusted, and those that SSL_CERT_FILE names. Raises
    TlsFilesBroken.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
    except OSError as error:  # SSLError is one
        raise TlsFilesBroken(f"tls: {files.ca}: no certificates of authorities: {error}") from error
    if files.certificate:
        try:
            context.load_cert_chain(files.certificate, files.key)
        except OSError as error:
            raise TlsFilesBroken(
                f"tls: {files.certificate} and {files.key}: no certificate and its key: {error}"
            ) from error
    return context
