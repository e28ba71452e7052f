"""Access to the page: who asks, by which proof, and with which rights.

On loopback anybody of this machine may look at states and figures. Orders, messages and ledgers
need the page's token: as `Authorization: Bearer TOKEN`, or by a session that a login with the token
began. At any other address everything but the login needs the token, over TLS. A proxy in front may
vouch for its users: it shows the token, and names the user in a header.

Against pages of other origins: the host has to be this machine's on loopback (DNS rebinding), the
browser must not call the request cross-site, and what changes something bears the CSRF token of the
session. Wrong tokens are counted by address, and soon answered 429.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from federation.brokers.broker_uri import is_loopback

TRIES = 5
"""Wrong tokens of an address before the next must wait."""
TRY_EVERY_S = 12.0
MOST_ADDRESSES = 10_000
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 1000
MOST_NAME = 80
"""Characters of a person's name."""
CSRF_HEADER = "X-CSRF-Token"
_FOREIGN = ("cross-site", "same-site")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Origin of a request: `who` for the log, empty without proof; `csrf` is the token that a
    changing request has to bear, empty if none (programs with the page's token).
    """

    who: str
    may_order: bool
    csrf: str


class WrongTokens:
    """Counts of wrong tokens by address: TRIES at once, then one every TRY_EVERY_S."""

    def __init__(self) -> None:
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """Time at which the address has all tries again, the latest failure last."""

    def wait_s(self, address: str, now: float) -> float:
        """Return for how long the address has to wait before its next try."""
        return max(0.0, self._free_at.get(address, now) - now - (TRIES - 1) * TRY_EVERY_S)

    def failed(self, address: str, now: float) -> None:
        """Count a wrong token."""
        self._free_at[address] = max(self._free_at.get(address, now), now) + TRY_EVERY_S
        self._free_at.move_to_end(address)
        if len(self._free_at) > MOST_ADDRESSES:
            self._free_at.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Session:
    who: str
    ends_at: float


class PageAccess:
    """Answers who a visitor is, and guards handlers. `token` returns the present token; `remedy`
    says in a sentence where a person finds the token.
    """

    def __init__(
        self,
        token: Callable[[], str],
        remedy: str,
        clock: Callable[[], float],
        *,
        is_local: bool,
        trust_header: str = "",
    ) -> None:
        self._token = token
        self._remedy = remedy
        self._clock = clock
        self.is_local = is_local
        self._trust_header = trust_header
        self._wrong = WrongTokens()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._secret = secrets.token_bytes(32)
        # Cookies are of a host, not of a port: another page there has another name for its own.
        self._cookie = f"isthmus_page_{secrets.token_hex(4)}"

    def visitor(self, request: web.Request) -> Visitor:
        """Return the request's visitor. Raises HTTPForbidden, HTTPUnauthorized, HTTPTooManyRequests
        for requests of other origins and wrong tokens.
        """
        has_token = self._has_token(request)
        is_proxy = has_token and bool(self._trust_header)
        self._check_origin(request, is_proxy=is_proxy)
        if is_proxy:
            who = request.headers.get(self._trust_header, "")[:MOST_NAME]
            if not who:
                raise self._unauthorized(f"the proxy names nobody in {self._trust_header}: ")
            return Visitor(who, True, self._csrf(f"proxy {who}"))
        if has_token:
            return Visitor("a program with the token", True, "")
        key = request.cookies.get(self._cookie, "")
        session = self._sessions.get(key)
        if session is not None and session.ends_at > self._clock():
            return Visitor(session.who, True, self._csrf(key))
        return Visitor("", False, self._csrf(""))

    def may_view(self, request: web.Request) -> bool:
        """Return True if the request's visitor may look at states and figures. Raises as
        `visitor`.
        """
        return self.visitor(request).may_order or self.is_local

    def viewing(self, handler: Handler) -> Handler:
        """Guard a handler that shows states and figures: open on loopback."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            if not self.may_view(request):
                raise self._unauthorized("")
            return await handler(request)

        return guarded

    def operating(
        self, handler: Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]
    ) -> Handler:
        """Guard a handler that gives orders, or shows messages or ledgers: needs the token."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            visitor = self.visitor(request)
            if not visitor.may_order:
                raise self._unauthorized("")
            self._check_csrf(request, visitor)
            return await handler(request, visitor)

        return guarded

    def log_in(self, request: web.Request, token: str, name: str) -> web.Response:
        """Begin a session for a person who knows the token. Raises as `visitor`."""
        self._check_csrf(request, self.visitor(request))
        self._check_token(request, token)
        key, now = secrets.token_urlsafe(32), self._clock()
        self._sessions[key] = _Session(name.strip()[:MOST_NAME] or "somebody", now + SESSION_S)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        response = web.json_response({"csrf": self._csrf(key)})
        response.set_cookie(
            self._cookie, key, httponly=True, samesite="Strict", secure=request.secure, path="/"
        )
        return response

    def log_out(self, request: web.Request) -> web.Response:
        """End the request's session, if there is one. Raises as `visitor`."""
        self._check_csrf(request, self.visitor(request))
        self._sessions.pop(request.cookies.get(self._cookie, ""), None)
        response = web.json_response({})
        response.del_cookie(self._cookie, path="/")
        return response

    def _has_token(self, request: web.Request) -> bool:
        header = request.headers.get("Authorization", "")
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer":
            return False
        self._check_token(request, token)
        return True

    def _check_token(self, request: web.Request, token: str) -> None:
        address, now = request.remote or "", self._clock()
        if wait_s := self._wrong.wait_s(address, now):
            raise web.HTTPTooManyRequests(
                text=f"too many wrong tokens from {address}: try again in {wait_s:.0f} s",
                headers={"Retry-After": f"{wait_s + 1:.0f}"},
            )
        given = token.encode(errors="surrogatepass")
        if not hmac.compare_digest(given, self._token().encode()):
            self._wrong.failed(address, now)
            raise self._unauthorized("the token is wrong: ")

    def _check_origin(self, request: web.Request, *, is_proxy: bool) -> None:
        if request.headers.get("Sec-Fetch-Site") in _FOREIGN:
            raise web.HTTPForbidden(text="this is not for other pages")
        if is_proxy:
            return  # which may have given the request another host
        try:
            host = URL(f"//{request.host}").host or ""
            origin = URL(request.headers.get("Origin") or f"//{request.host}").authority
        except ValueError:
            raise web.HTTPForbidden(text="host and origin are no addresses") from None
        if self.is_local and not is_loopback(host):
            raise web.HTTPForbidden(text="ask by a loopback address, such as 127.0.0.1")
        if origin != URL(f"//{request.host}").authority:
            raise web.HTTPForbidden(text="this is not for other pages")

    def _check_csrf(self, request: web.Request, visitor: Visitor) -> None:
        if request.method in ("GET", "HEAD") or not visitor.csrf:
            return
        shown = request.headers.get(CSRF_HEADER, "").encode(errors="surrogateescape")
        if not hmac.compare_digest(shown, visitor.csrf.encode()):
            raise web.HTTPForbidden(
                text=f"the header {CSRF_HEADER} is missing or of another session: reload the page"
            )

    def _csrf(self, key: str) -> str:
        return hmac.new(
            self._secret, key.encode(errors="surrogatepass"), hashlib.sha256
        ).hexdigest()

    def _unauthorized(self, why: str) -> web.HTTPUnauthorized:
        return web.HTTPUnauthorized(
            text=f"{why}{self._remedy}", headers={"WWW-Authenticate": "Bearer"}
        )
