"""A TLS context that follows its files: what is renewed on disk is for the next connection.

Certificate and key are two files, and whoever renews them writes the one before the other; a copy
is half there for a moment. So what cannot be used just now breaks nothing: the last context that
could be made stays, with one warning, until the files can be used again.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

from federation.file_stamp import FileStamp

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
