"""Health, status and metrics of a process over HTTP: on loopback, and elsewhere if configured.

GET /health    200 while the event loop turns; watched by the supervisor
GET /status    one JSON object: {"pid", "revision", "sites": {...}, "links": [...]}
GET /metrics   the catalogue of metrics (`relay/admin/metrics`) as Prometheus text, and the names
               of the former release beside; /metrics?names=new without those

On loopback these are for any program of this machine, and the routes that `extend` adds for callers
with the process's token (`operator_routes`). From elsewhere all of them need TLS and the mesh
file's token, and no route changes anything (`AdminAfar`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from federation.brokers.broker_uri import is_loopback
from relay.admin.access import AdminAfar, AdminUnavailable, from_this_machine
from relay.admin.metrics.exposition import CONTENT_TYPE, metrics_text

log = logging.getLogger(__name__)

Report = Callable[[], dict[str, Any]]
LOOPBACK = "127.0.0.1"


class Admin:
    """Serves the present report on each request."""

    def __init__(
        self,
        report: Report,
        host: str = LOOPBACK,
        port: int = 0,
        extend: Callable[[web.Application], None] | None = None,
        afar: AdminAfar | None = None,
        measured: Report | None = None,
    ) -> None:
        """Serve on loopback at `port` (0: a free one), also at `host` if another loopback address
        is given, and at `afar`. `measured` returns the report with figures for metrics alone.
        """
        self._report = report
        self._measured = measured or report
        self._extend = extend
        self._host = host
        self._port = port
        self._afar = afar
        self._servers: list[AdminServer] = []

    async def start(self) -> int:
        """Listen, and return the port on loopback. Raises AdminUnavailable."""
        if not is_loopback(self._host):
            raise AdminUnavailable(
                f"admin: at {self._host}, which is no loopback address, it wants TLS and a token: "
                "write `admin: {url: https://HOST:PORT, token: ..., certificate: ..., key: ...}` "
                "at the site in the mesh file"
            )
        port = await self._serve(self._local_app(), LOOPBACK, self._port)
        if self._host not in (LOOPBACK, "localhost"):
            await self._serve(self._local_app(), self._host, port)
        if (afar := self._afar) is not None:
            app = self._app(afar.guard())
            await self._serve(app, afar.host, afar.port, afar)
        return port

    def _local_app(self) -> web.Application:
        app = self._app(from_this_machine())
        if self._extend is not None:
            self._extend(app)
        return app

    def _app(self, guard: Middleware) -> web.Application:
        app = web.Application(middlewares=[guard], client_max_size=MOST_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _serve(
        self, app: web.Application, host: str, port: int, afar: AdminAfar | None = None
    ) -> int:
        server = AdminServer(app)
        try:
            listening = await server.start(host, port, afar.checked() if afar else None)
        except AdminUnavailable:
            await self.close()
            raise
        except OSError as error:
            await self.close()
            raise AdminUnavailable(
                f"cannot listen at {host}:{port} for status: {error.strerror or error}; if this "
                "machine has another address there, name it with --admin-host"
            ) from error
        self._servers.append(server)
        return listening

    async def close(self) -> None:
        """Close; neither running requests nor kept connections hold up the end of the process."""
        for server in self._servers:
            if not await server.close():
                log.warning(
                    "somebody keeps a connection to the admin port: it is left behind",
                    extra={"event": "admin-connection-left"},
                )
        self._servers = []

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"pid": os.getpid()})

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._report())

    async def _metrics(self, request: web.Request) -> web.Response:
        names = request.query.get("names", _BOTH)
        if names not in (_BOTH, _NEW):
            raise web.HTTPBadRequest(text=f"names={names}: there are {_BOTH} and {_NEW}\n")
        # In a thread, since a hub's text takes as long as many batches do.
        body = await asyncio.to_thread(
            metrics_text, self._measured(), with_old_names=names == _BOTH
        )
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


_BOTH = "both"
_NEW = "new"

CLOSE_WITHIN_S = 0.5
FIRST_REQUEST_WITHIN_S = 10.0
"""Time for the first request of a connection, TLS handshake included: a scraper takes
milliseconds.
"""
IDLE_S = 30.0
"""Time between the requests of one connection, and for the whole head of each."""
MOST_CONNECTIONS = 200
"""Connections at a time: callers are not to use up the descriptors that the node itself needs."""
MOST_BYTES = 1 << 20
"""Limit of a request's body, for handlers that read it at once."""


class AdminServer:
    """One listener of the admin port, with bounds for callers that have not authenticated yet.
    Made, `start`ed, `close`d once.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        first_request_within_s: float = FIRST_REQUEST_WITHIN_S,
        most_connections: int = MOST_CONNECTIONS,
    ) -> None:
        self._most_connections = most_connections
        self._first_within_s = first_request_within_s
        self._silent: set[Any] = set()
        app.middlewares.insert(0, self._hear())
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=CLOSE_WITHIN_S,
            keepalive_timeout=IDLE_S,
        )
        self._server: asyncio.AbstractServer | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port (a free one for 0). Raises OSError."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        limit = self._first_within_s if context is not None else None
        try:
            server = await loop.create_server(
                self._connected, host, port, ssl=context, ssl_handshake_timeout=limit
            )
        except OSError:
            await self._runner.cleanup()
            raise
        self._server = server
        listening: int = server.sockets[0].getsockname()[1]
        return listening

    async def close(self) -> bool:
        """Close; return False if somebody's connection was left behind."""
        if self._server is not None:
            self._server.close()
        try:
            async with asyncio.timeout(2 * CLOSE_WITHIN_S):
                await self._runner.cleanup()
        except TimeoutError:
            return False
        return True

    def _connected(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        if len({*server.connections, *self._silent}) >= self._most_connections:
            return _TurnedAway()
        protocol = server()
        self._silent.add(protocol)
        asyncio.get_running_loop().call_later(self._first_within_s, self._end_if_silent, protocol)
        return protocol

    def _end_if_silent(self, protocol: Any) -> None:
        if protocol in self._silent:
            self._silent.discard(protocol)
            if protocol.transport is not None:
                protocol.transport.abort()

    def _hear(self) -> Middleware:
        @web.middleware
        async def hear(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._silent.discard(request.protocol)
            return await handler(request)

        return hear


class _TurnedAway(asyncio.Protocol):
    """Connection beyond MOST_CONNECTIONS, aborted at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()  # a cast, since uvloop's do not inherit from it
