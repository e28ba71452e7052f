"""A process's health, status and metrics over HTTP: on loopback, and where it is told to besides.

GET /health    200 while the event loop turns; what the supervisor watches
GET /status    one JSON object: {"pid", "revision", "sites": {...}, "links": [...]}
GET /metrics   the same figures as Prometheus text

What `extend` adds is for who knows the process's token (`admin_mending`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from aiohttp import web

log = logging.getLogger(__name__)

Report = Callable[[], dict[str, Any]]
CLOSE_WITHIN_S = 0.5
LOOPBACK = "127.0.0.1"


class AdminUnavailable(Exception):
    """The admin port cannot be opened; the text says what to do."""


class Admin:
    """Serves what `report` says at the moment of asking."""

    def __init__(
        self,
        report: Report,
        host: str = LOOPBACK,
        port: int = 0,
        extend: Callable[[web.Application], None] | None = None,
    ) -> None:
        self._report = report
        self._extend = extend
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; the port (a free one if none was asked for)."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._metrics)
        if self._extend is not None:
            self._extend(app)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_WITHIN_S
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, self._port).start()
        port: int = self._runner.addresses[0][1]
        if self._host not in (LOOPBACK, "localhost"):
            await self._listen_at(self._host, port)
        return port

    async def _listen_at(self, host: str, port: int) -> None:
        assert self._runner is not None
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise AdminUnavailable(
                f"cannot listen at {host}:{port} for status: {error.strerror or error}; if this "
                "machine has another address there, name it with --admin-host"
            ) from error

    async def close(self) -> None:
        """Close; who asks just now, or keeps a connection, does not hold up the process's end."""
        if self._runner is None:
            return
        try:
            # From Python 3.12 on a server waits for connections, too: also for idle ones.
            async with asyncio.timeout(2 * CLOSE_WITHIN_S):
                await self._runner.cleanup()
        except TimeoutError:
            log.warning("somebody keeps a connection to the admin port: it is left behind")

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
            lines += _numbers(link, labels, "isthmus_link_in")
    for link in report["links"]:
        labels = f'from="{link["from"]}",to="{link["to"]}"'
        lines += _numbers(link, labels, "isthmus_link")
    return "\n".join(sorted(lines)) + "\n"


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
