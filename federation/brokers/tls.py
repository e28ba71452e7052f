"""TLS as a client: the trusted authorities, the certificate shown, and their renewal on disk.

The server's certificate and host name are always checked, and TLS is 1.2 or newer: the mesh file
cannot change that.

A renewed file counts for the next connection. Certificate and key are two files, written one after
the other, and a copy is half complete for a moment. So files that cannot be used just now break
nothing: the last good context stays, with one warning, until the files can be used again.
"""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

from federation.durable_file import FileStamp
from federation.mesh import TlsFiles

log = logging.getLogger(__name__)

Stamp = tuple[FileStamp | None, ...]
Context = TypeVar("Context", bound=ssl.SSLContext)


class TlsFilesBroken(Exception):
    """A PEM file cannot be read or used; the text names the file."""


class NobodyTrusted(TlsFilesBroken):
    """A file of authorities without any. This is no moment of a renewal but its owner's will:
    authorities trusted before are not trusted any more.
    """


class RenewedContext(Generic[Context]):
    """A TLS context that follows its files. `make` makes the context from `paths`, and raises
    TlsFilesBroken if they cannot be used.
    """

    def __init__(self, paths: tuple[str, ...], make: Callable[[], Context]) -> None:
        self._paths = paths
        self._make = make
        self._made: tuple[Stamp, Context] | None = None
        self._warned = ""

    def present(self) -> Context:
        """Return the context of the present files. Raises TlsFilesBroken if the files were never
        usable, and NobodyTrusted.
        """
        # The stamp comes first: files that change while being read look changed the next time.
        stamp = tuple(map(FileStamp.of, self._paths))
        if self._made is not None and self._made[0] == stamp:
            return self._made[1]
        try:
            context = self._make()
        except NobodyTrusted:
            raise
        except TlsFilesBroken as error:
            if self._made is None:
                raise
            if self._warned != str(error):
                self._warned = str(error)
                log.warning(
                    "%s; what was there before is used until it can be",
                    error,
                    extra={"event": "certificate-unusable"},
                )
            return self._made[1]
        if self._warned:
            log.info(
                "%s: can be used again",
                ", ".join(filter(None, self._paths)),
                extra={"event": "certificate-usable"},
            )
        self._made, self._warned = (stamp, context), ""
        return context


class ClientContext(ssl.SSLContext):
    """A TLS context with its files, which explanations of a failed connection name."""

    files: TlsFiles


def client_context(files: TlsFiles) -> ClientContext:
    """Return a context that checks the server's certificate and host name. A later call takes up
    renewed files; files that cannot be used just now cause no error if they could be used before.

    Without `ca`, the system's authorities and those of SSL_CERT_FILE are trusted. Raises
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
    """Load a certificate and its key into a context. Raises TlsFilesBroken."""
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
    """Return True for a readable file without any certificate."""
    try:
        return b"-----BEGIN" not in Path(path).read_bytes()
    except OSError:
        return False
