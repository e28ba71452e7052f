"""Routes of the page.

GET  /                            the page; /static/ has its scripts
GET  /health                      {"pid"}
GET  /api/session                 {"who", "may_order", "is_local", "csrf", "mesh", "prometheus"}
POST /api/login                   {"token", "name"}; begins a session
POST /api/logout
GET  /api/mesh                    the present view (`mesh_view`)
GET  /api/events                  the same and its changes, as Server-Sent Events
GET  /api/drawing?open=HUB        the graph (`drawing`)
GET  /api/history?site=S|link=L   the last hour
With the token only:
GET  /api/orders                  {"orders": [...]}, the log
POST /api/orders                  {"order": "pause", "site": ...}; answers the logged order at once
GET  /api/aside/SITE/QUEUE        messages put aside; /ID behind it: one, with its body
GET  /api/trace?id=ID&date=DATE   a message's way
GET  /api/audits
POST /api/outage                  {"fail": [...], "for", "rate"}

Errors are plain text with what to do: 400, 401, 403, 404, 429, 503.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from isthmus.page import questions
from isthmus.page.access import PageAccess, Visitor
from isthmus.page.desk import OrderDesk, TooManyOrders
from isthmus.page.drawing import drawing
from isthmus.page.gatherer import Gatherer
from isthmus.page.orders import BadOrder, OrderPlace, planned_order
from isthmus.page.prometheus import Prometheus, PrometheusAway
from isthmus.page.questions import BadInquiry, NoAnswer
from relay.delivery.put_aside import Aside

STATIC = Path(__file__).parent / "static"
MOST_BYTES = 1 << 17
"""Limit of a request's body."""
QUIET_S = 15.0
"""Time after which a quiet stream of events gets a comment, by which its end is noticed."""
MOST_QUESTIONS = 4
"""Questions that run at a time; others wait."""
SHOWN_OUTCOMES = 20
"""Latest orders whose outcomes go with the events."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_T = TypeVar("_T")


class PageRoutes:
    """Handlers of the page over its parts."""

    def __init__(
        self,
        gatherer: Gatherer,
        desk: OrderDesk,
        access: PageAccess,
        prometheus: Prometheus | None = None,
    ) -> None:
        self._gatherer = gatherer
        self._desk = desk
        self._access = access
        self._prometheus = prometheus
        self._questions = asyncio.Semaphore(MOST_QUESTIONS)
        self._streams: set[asyncio.Task[Any]] = set()

    def app(self) -> web.Application:
        """Return the application, to be served once."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.on_response_prepare.append(_with_headers)
        app.on_shutdown.append(self._end_streams)
        viewing, operating = self._access.viewing, self._access.operating
        get, post = app.router.add_get, app.router.add_post
        get("/", _index)
        get("/health", viewing(_health))
        app.router.add_static("/static", STATIC)
        get("/api/session", self._session)
        post("/api/login", self._login)
        post("/api/logout", self._logout)
        get("/api/mesh", viewing(self._mesh))
        get("/api/events", viewing(self._events))
        get("/api/drawing", viewing(self._drawing))
        get("/api/history", viewing(self._history))
        get("/api/orders", operating(self._orders))
        post("/api/orders", operating(self._order))
        get("/api/aside/{site}/{aside}", operating(self._aside))
        get("/api/aside/{site}/{aside}/{id}", operating(self._message))
        get("/api/trace", operating(self._trace))
        get("/api/audits", operating(self._audits))
        post("/api/outage", operating(self._outage))
        return app

    async def _session(self, request: web.Request) -> web.Response:
        visitor = self._access.visitor(request)
        content = {
            "who": visitor.who,
            "may_order": visitor.may_order,
            "is_local": self._access.is_local,
            "csrf": visitor.csrf,
            "prometheus": self._prometheus is not None,
        }
        if visitor.may_order or self._access.is_local:
            content["mesh"] = self._gatherer.source.mesh.name
        return web.json_response(content)

    async def _login(self, request: web.Request) -> web.Response:
        fields = await _fields(request)
        token, name = fields.get("token"), fields.get("name", "")
        if not isinstance(token, str) or not isinstance(name, str):
            raise web.HTTPBadRequest(text='say {"token": "...", "name": "..."}')
        return self._access.log_in(request, token, name)

    async def _logout(self, request: web.Request) -> web.Response:
        return self._access.log_out(request)

    async def _mesh(self, request: web.Request) -> web.Response:
        return web.json_response(self._gatherer.view)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        def outcomes() -> dict[str, str]:
            if not self._access.visitor(request).may_order:
                return {}
            latest = self._desk.orders.latest()[:SHOWN_OUTCOMES]
            return {one.id: one.outcome for one in latest}

        # The second is for nginx, which would gather events before it passes them on.
        kind = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=kind)
        await response.prepare(request)
        stream = asyncio.current_task()
        assert stream is not None
        self._streams.add(stream)
        try:
            async for data in _with_comments(self._gatherer.read(outcomes)):
                if not self._access.may_view(request):
                    break  # the session has ended
                await response.write(data)
        except (ConnectionError, web.HTTPException):
            return response  # the reader has gone, or has a token of before
        finally:
            self._streams.discard(stream)
        return response

    async def _end_streams(self, app: web.Application) -> None:
        """End the streams of events, which would last for ever."""
        for stream in self._streams:
            stream.cancel()

    async def _drawing(self, request: web.Request) -> web.Response:
        opened = request.query.getall("open", [])
        return web.json_response(drawing(self._gatherer.source.mesh, opened))

    async def _history(self, request: web.Request) -> web.Response:
        for kind, word in (("sites", "site"), ("links", "link")):
            if (name := request.query.get(word)) is not None:
                return web.json_response(await self._hour(kind, name))
        raise web.HTTPBadRequest(text="say ?site=SITE or ?link=FROM-TO")

    async def _hour(self, kind: str, name: str) -> dict[str, Any]:
        why = ""
        if self._prometheus is not None and (one := self._gatherer.view[kind].get(name)):
            ends = {"from": one["from"], "to": one["to"]} if kind == "links" else {"site": name}
            try:
                hour = await self._prometheus.hour(kind, ends, time.time())
                return {"source": "prometheus", "why": "", **hour}
            except PrometheusAway as error:
                why = f"{error}; these lines are what this page has gathered itself"
        try:
            return {"source": "page", "why": why, **self._gatherer.hour.of(kind, name)}
        except KeyError:
            raise web.HTTPNotFound(text=f"nothing is known of {name!r} in the last hour") from None

    async def _orders(self, request: web.Request, visitor: Visitor) -> web.Response:
        return web.json_response({"orders": [one.as_json() for one in self._desk.orders.latest()]})

    async def _order(self, request: web.Request, visitor: Visitor) -> web.Response:
        fields = await _fields(request)
        source = self._gatherer.source
        place = OrderPlace(
            source.file, source.state, source.mesh, questions.audit_folders(source.state)
        )
        kind = fields.get("order")
        try:
            planned = planned_order(kind if isinstance(kind, str) else "", fields, place)
            who = f"{visitor.who} at {request.remote}"
            given = self._desk.give(who, str(kind), planned)
        except BadOrder as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except TooManyOrders as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from None
        except OSError as error:
            raise web.HTTPServiceUnavailable(
                text=f"not done, since it cannot be logged: {error}"
            ) from None
        return web.json_response(given.as_json())

    async def _aside(self, request: web.Request, visitor: Visitor) -> web.Response:
        site, aside = self._queue(request)
        source = self._gatherer.source
        work = questions.messages_put_aside(source.state, site, aside)
        return web.json_response(await self._answer(work))

    async def _message(self, request: web.Request, visitor: Visitor) -> web.Response:
        site, aside = self._queue(request)
        source, id_ = self._gatherer.source, request.match_info["id"]
        work = questions.message_put_aside(source.file, source.state, site, aside, id_)
        return web.json_response(await self._answer(work))

    async def _trace(self, request: web.Request, visitor: Visitor) -> web.Response:
        query, source = request.query, self._gatherer.source
        work = questions.message_trace(
            source.file, source.state, query.get("id", ""), query.get("date", "")
        )
        return web.json_response(await self._answer(work))

    async def _audits(self, request: web.Request, visitor: Visitor) -> web.Response:
        source = self._gatherer.source
        found = await asyncio.to_thread(questions.audits, source.state, source.mesh.name)
        return web.json_response({"audits": found})

    async def _outage(self, request: web.Request, visitor: Visitor) -> web.Response:
        fields = await _fields(request)
        work = questions.outage_tables(self._gatherer.source.file, fields)
        return web.json_response({"parts": await self._answer(work)})

    def _queue(self, request: web.Request) -> tuple[str, Aside]:
        site, aside = request.match_info["site"], request.match_info["aside"]
        if site not in self._gatherer.source.mesh.sites or aside not in list(Aside):
            raise web.HTTPNotFound(text=f"the mesh has no {aside!r} of a site {site!r}")
        return site, Aside(aside)

    async def _answer(self, work: Awaitable[_T]) -> _T:
        """Wait for an answer, a few at a time. Raises the fitting HTTP error."""
        try:
            async with self._questions:
                return await work
        except BadInquiry as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except (NoAnswer, OSError, ValueError) as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from None


async def _index(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(STATIC / "index.html")


async def _health(request: web.Request) -> web.Response:
    return web.json_response({"pid": os.getpid()})


async def _with_comments(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield events as a stream has them, and comments while there are none."""
    upcoming = asyncio.ensure_future(anext(events))
    try:
        while True:
            if (await asyncio.wait({upcoming}, timeout=QUIET_S))[0]:
                yield b"data: " + json.dumps(upcoming.result()).encode() + b"\n\n"
                upcoming = asyncio.ensure_future(anext(events))
            else:
                yield b": still here\n\n"
    finally:
        upcoming.cancel()


async def _with_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    # A page of another version must not run with these scripts.
    is_static = request.path.startswith("/static/") or request.path == "/"
    response.headers["Cache-Control"] = "no-cache" if is_static else "no-store"


async def _fields(request: web.Request) -> dict[str, Any]:
    """Return the JSON object of a request's body. Raises HTTPBadRequest for anything else, and for
    other types, which a form of another page could send.
    """
    if request.content_type != "application/json":
        raise web.HTTPBadRequest(text="the body is to be of type application/json")
    try:
        fields = await request.json()
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise web.HTTPBadRequest(text="a JSON object is asked for")
    return fields
