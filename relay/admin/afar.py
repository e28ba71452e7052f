"""The admin port for other machines: TLS with the node's own certificate, and a token.

Certificate, key and token are renewed on disk, and taken up by the next connection or request.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Middleware

from federation.brokers.passwords import PasswordMissing, resolve_password
from federation.brokers.tls import RenewedContext, TlsFilesBroken, load_pair
from relay.admin.guard import with_token

log = logging.getLogger(__name__)

SHORTEST_TOKEN = 16


class AdminUnavailable(Exception):
    """The admin port cannot be opened; the text says what to do."""


@dataclass(frozen=True, slots=True)
class AdminAfar:
    """Where, and with what. `token` is `env:NAME` or `file:PATH`, looked up in `environ`."""

    host: str
    port: int
    certificate: str
    key: str
    token: str
    environ: Mapping[str, str] = field(repr=False)

    def checked(self) -> ssl.SSLContext:
        """A context that shows, to each who connects, what the files are by then. Raises
        AdminUnavailable unless all is there that it takes to begin.
        """
        shown = RenewedContext((self.certificate, self.key), self._context)
        try:
            outer = self._context()
            shown.present()
            token = resolve_password(self.token, self.environ)
        except (TlsFilesBroken, PasswordMissing) as error:
            raise AdminUnavailable(f"admin: {error}") from error
        if len(token) < SHORTEST_TOKEN:
            raise AdminUnavailable(
                f"admin: the token in {self.token} has fewer than {SHORTEST_TOKEN} characters: "
                "make one with `openssl rand -hex 32`"
            )

        def show(connecting: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connecting.context = shown.present()

        outer.sni_callback = show  # called without a name too
        return outer

    def guard(self) -> Middleware:
        """Lets in whoever has the token."""
        return with_token(self._present_token)

    def _present_token(self) -> str:
        try:
            return resolve_password(self.token, self.environ)
        except PasswordMissing as error:
            log.warning("admin: %s", error)
            raise web.HTTPServiceUnavailable(text="this node has no token just now") from None

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self.certificate, self.key)
        return context
