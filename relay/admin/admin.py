"""A process's health, status and metrics over HTTP: on loopback, and where it is told to besides.

GET /health    200 while the event loop turns; what the supervisor watches
GET /status    one JSON object: {"pid", "revision", "sites": {...}, "links": [...]}
GET /metrics   the same figures as Prometheus text

On loopback these are for any program of this machine, and what `extend` adds for whoever knows the
process's token (`mending_routes`). From elsewhere all of it wants TLS and the mesh file's token,
and there is nothing that changes anything (`afar`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from federation.brokers.broker_uri import is_loopback
from relay.admin.afar import AdminAfar, AdminUnavailable
from relay.admin.guard import from_this_machine
from relay.admin.server import MOST_BYTES, AdminServer

log = logging.getLogger(__name__)

Report = Callable[[], dict[str, Any]]
LOOPBACK = "127.0.0.1"


class Admin:
    """Serves what `report` says at the moment of asking."""

    def __init__(
        self,
        report: Report,
        host: str = LOOPBACK,
        port: int = 0,
        extend: Callable[[web.Application], None] | None = None,
        afar: AdminAfar | None = None,
    ) -> None:
        """On loopback at `port` (0: a free one), also at `host` if that is another loopback
        address, and `afar`.
        """
        self._report = report
        self._extend = extend
        self._host = host
        self._port = port
        self._afar = afar
        self._servers: list[AdminServer] = []

    async def start(self) -> int:
        """Listen; the port on loopback. Raises AdminUnavailable."""
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
        """Close; who asks just now, or keeps a connection, does not hold up the process's end."""
        for server in self._servers:
            if not await server.close():
                log.warning("somebody keeps a connection to the admin port: it is left behind")
        self._servers = []

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"pid": os.getpid()})

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response(self._report())

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=prometheus_text(self._report()), content_type="text/plain")


def prometheus_text(report: dict[str, Any]) -> str:
    """Every number of a report as `isthmus_*` with the site or the link as labels."""
    lines: list[str] = []
    for site, figures in report["sites"].items():
        lines += _numbers(figures, f'site="{site}"', "isthmus_site")
        for link in figures.get("links_in", ()):
            labels = f'from="{link["from"]}",to="{link["to"]}"'
            lines += _link_numbers(link, labels, "_in")
    for link in report["links"]:
        labels = f'from="{link["from"]}",to="{link["to"]}"'
        lines += _link_numbers(link, labels, "")
    return "\n".join(sorted(lines)) + "\n"


def _link_numbers(link: dict[str, Any], labels: str, way: str) -> list[str]:
    """Lanes have names of their own, so that a sum over links does not count them twice."""
    lines = _numbers(link, labels, f"isthmus_link{way}")
    for lane, figures in link.get("lanes", {}).items():
        lines += _numbers(figures, f'{labels},lane="{lane}"', f"isthmus_lane{way}")
    return lines


def _numbers(figures: dict[str, Any], labels: str, prefix: str) -> list[str]:
    lines = []
    for name, value in figures.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            lines.append(f"{prefix}_{name}{{{labels}}} {value}")
        elif name == "state":
            lines.append(
                f'{prefix}_up{{{labels},state="{value}"}} {int(value in ("running", "lagging"))}'
            )
    return lines
