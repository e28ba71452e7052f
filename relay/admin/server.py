"""One listener of the admin port, with bounds on what those may hold who have shown nothing yet."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

CLOSE_WITHIN_S = 0.5
FIRST_REQUEST_WITHIN_S = 10.0
"""Of a connection, TLS handshake included: a scraper's takes milliseconds."""
IDLE_S = 30.0
"""Between the requests of one connection, and for the whole head of each."""
MOST_CONNECTIONS = 200
"""At a time: those who ask are not to use up the descriptors that the node itself needs."""
MOST_BYTES = 1 << 20
"""Of a request's body, for those who read it at once."""


class AdminServer:
    """Serves `app` at one place. Made, `start`ed, `close`d once."""

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
        """Listen; the port (a free one for 0). Raises OSError."""
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
        """Close; False if somebody's connection was left behind for that."""
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
    """There are too many already."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()  # a cast, since uvloop's do not inherit from it
