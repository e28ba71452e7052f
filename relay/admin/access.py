"""Access to the admin port: the guard of each listener, and the listener for other machines.

On loopback, programs of this machine may ask. A browser is one too, and runs pages from elsewhere:
a page can have requests sent here, and by a name of its own that resolves to 127.0.0.1 even read
the answers (DNS rebinding). So a request has to name this machine as its host, and no other origin.

From other machines, callers need the token that the mesh file names, over TLS with the node's own
certificate. Certificate, key and token are renewed on disk, and taken up by the next connection or
request.
"""

from __future__ import annotations

import hmac
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from federation.brokers.broker_uri import is_loopback
from federation.brokers.credentials import PasswordMissing, resolve_password
from federation.brokers.tls import RenewedContext, TlsFilesBroken, load_pair

log = logging.getLogger(__name__)

SHORTEST_TOKEN = 16


class AdminUnavailable(Exception):
    """The admin port cannot be opened; the text has the remedy."""


@dataclass(frozen=True, slots=True)
class AdminAfar:
    """Address and credentials of the admin port for other machines. `token` is `env:NAME` or
    `file:PATH`, looked up in `environ`.
    """

    host: str
    port: int
    certificate: str
    key: str
    token: str
    environ: Mapping[str, str] = field(repr=False)

    def checked(self) -> ssl.SSLContext:
        """Return a TLS context that presents the files of the moment to each connection. Raises
        AdminUnavailable if something is missing.
        """
        renewed = RenewedContext((self.certificate, self.key), self._context)
        try:
            outer = self._context()
            renewed.present()
            token = resolve_password(self.token, self.environ)
        except (TlsFilesBroken, PasswordMissing) as error:
            raise AdminUnavailable(f"admin: {error}") from error
        if len(token) < SHORTEST_TOKEN:
            raise AdminUnavailable(
                f"admin: the token in {self.token} has fewer than {SHORTEST_TOKEN} characters: "
                "make one with `openssl rand -hex 32`"
            )

        def show(connecting: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connecting.context = renewed.present()

        outer.sni_callback = show  # called without a name too
        return outer

    def guard(self) -> Middleware:
        """Return a guard that admits requests with the token."""
        return with_token(self._present_token)

    def _present_token(self) -> str:
        try:
            return resolve_password(self.token, self.environ)
        except PasswordMissing as error:
            log.warning("admin: %s", error, extra={"event": "admin-token-missing"})
            raise web.HTTPServiceUnavailable(text="this node has no token just now") from None

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self.certificate, self.key)
        return context


def from_this_machine() -> Middleware:
    """Return a guard that refuses requests made for a page of another origin: 403."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            host = URL(f"//{request.host}").host or ""
        except ValueError:
            host = ""
        if not is_loopback(host):
            raise web.HTTPForbidden(text="ask by a loopback address, such as 127.0.0.1")
        if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site") in _OTHER_SITES:
            raise web.HTTPForbidden(text="this is not for other pages")
        return await handler(request)

    return guard


_OTHER_SITES = ("cross-site", "same-site")


def with_token(present: Callable[[], str]) -> Middleware:
    """Return a guard that refuses requests without the token that `present` returns: 401."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        check_token(request, present())
        return await handler(request)

    return guard


def check_token(request: web.Request, token: str) -> None:
    """Raise HTTPUnauthorized unless the request bears the token."""
    header = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    if not hmac.compare_digest(header, f"Bearer {token}".encode()):
        raise web.HTTPUnauthorized(
            text="the token of this process is asked for", headers={"WWW-Authenticate": "Bearer"}
        )
