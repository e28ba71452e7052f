"""Who may ask at an admin port, looked at before any route is.

On loopback: programs of this machine. A browser is one too, and what it runs came from elsewhere: a
page can have it send requests here, and by a name of its own that leads to 127.0.0.1 even read the
answers (DNS rebinding). So the request has to name this machine as its host, and no other origin.

From other machines: whoever has the token that the mesh file names, over TLS; see `afar`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from federation.brokers.broker_uri import is_loopback


def from_this_machine() -> Middleware:
    """Refuses what a page of another origin has a browser ask: 403."""

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
    """Refuses every request without the token that `present` gives: 401."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        check_token(request, present())
        return await handler(request)

    return guard


def check_token(request: web.Request, token: str) -> None:
    """Raises HTTPUnauthorized unless the request bears it."""
    given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    if not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise web.HTTPUnauthorized(
            text="the token of this process is asked for", headers={"WWW-Authenticate": "Bearer"}
        )
