"""x"""

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
    """A PEM file cannot be read or used; the text names it."""


class NobodyTrusted(TlsFilesBroken):
    """A file of authorities that has none. No moment of a renewal, but what its owner says: what
    was trusted before is not trusted any more.
    """


class RenewedContext(Generic[Context]):
    """`make` makes the context from `paths`, and raises TlsFilesBroken where it cannot."""

    def __init__(self, paths: tuple[str, ...], make: Callable[[], Context]) -> None:
        self._paths = paths
        self._make = make
        self._made: tuple[Stamp, Context] | None = None
        self._warned = ""

    def present(self) -> Context:
        """What the files are good for now. Raises TlsFilesBroken where they never were good for
        anything, and NobodyTrusted.
        """
        # Looked at first: files that change while they are read look changed the next time.
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
                log.warning("%s; what was there before is used until it can be", error)
            return self._made[1]
        if self._warned:
            log.info("%s: can be used again", ", ".join(filter(None, self._paths)))
        self._made, self._warned = (stamp, context), ""
        return context


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
