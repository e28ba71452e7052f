"""Server of the page: its parts, its listener, and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from federation import durable_file
from federation.brokers.broker_uri import is_loopback
from federation.brokers.credentials import PasswordMissing, resolve_password
from isthmus.page.access import PageAccess
from isthmus.page.desk import OrderDesk
from isthmus.page.gatherer import Gatherer, MeshOfFile
from isthmus.page.order_log import OrderLog
from isthmus.page.prometheus import Prometheus
from isthmus.page.routes import PageRoutes
from isthmus.up.supervised import ANNOUNCED_PAGE
from relay.admin.access import SHORTEST_TOKEN, AdminAfar, AdminUnavailable
from relay.admin.admin import AdminServer

log = logging.getLogger(__name__)

TOKEN_FILE = "page.token"
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 8642


class PageUnavailable(Exception):
    """The page cannot be served; the text has the remedy."""


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Listener and surroundings of a page. `port` None: DEFAULT_PORT, or a free one if that is
    taken. `token` is `env:NAME` or `file:PATH`; empty: a file in the state folder, made if missing.
    """

    host: str = LOOPBACK
    port: int | None = None
    certificate: str = ""
    key: str = ""
    token: str = ""
    trust_header: str = ""
    prometheus: str = ""

    @property
    def is_local(self) -> bool:
        """True if only this machine reaches the page."""
        return is_loopback(self.host)


class PageServer:
    """One page over a mesh file and a state folder."""

    def __init__(self, source: MeshOfFile, options: PageOptions) -> None:
        self._source = source
        self._options = options
        self._token = options.token or f"file:{(source.state / TOKEN_FILE).absolute()}"

    async def run(self, announce: Callable[[str], None]) -> None:
        """Serve until SIGTERM or SIGINT; `announce` gets the address. Raises PageUnavailable, and
        whatever keeps the nodes from being asked: a page that shows old states must not live on.
        """
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with AsyncExitStack() as parts:
            url = await self.start(parts)
            announce(url)
            stopping = asyncio.create_task(stop.wait())
            ends = {stopping, self._gathering}
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            for one in done:
                one.result()  # of the gatherer an error, with which the process ends

    async def start(self, parts: AsyncExitStack) -> str:
        """Serve until `parts` are closed; return the address. Raises PageUnavailable."""
        self._check()
        options, state = self._options, self._source.state
        gatherer = Gatherer(self._source, time.monotonic, time.time)
        try:
            desk = OrderDesk(OrderLog(state), gatherer.wake)
        except OSError as error:
            raise PageUnavailable(f"the log of orders cannot be read: {error}") from error
        parts.push_async_callback(desk.close)
        session = await parts.enter_async_context(aiohttp.ClientSession())
        prometheus = Prometheus(options.prometheus, session) if options.prometheus else None
        access = PageAccess(
            self._present_token,
            self._remedy,
            time.monotonic,
            is_local=options.is_local,
            trust_header=options.trust_header,
        )
        server = AdminServer(PageRoutes(gatherer, desk, access, prometheus).app())
        port = await self._listen(server)
        parts.push_async_callback(server.close)
        self._gathering = asyncio.create_task(gatherer.run())
        parts.callback(self._gathering.cancel)
        content = {"pid": os.getpid(), "admin_port": port}
        durable_file.write(state / ANNOUNCED_PAGE, json.dumps(content))
        scheme = "http" if options.is_local and not options.certificate else "https"
        host = f"[{options.host}]" if ":" in options.host else options.host
        return f"{scheme}://{host}:{port}/"

    @property
    def _remedy(self) -> str:
        kind, _, place = self._token.partition(":")
        where = f"the environment variable {place}" if kind == "env" else place
        return f"the page's token is asked for; it is in {where}, on the page's machine"

    def _check(self) -> None:
        """Check the options and have a token. Raises PageUnavailable."""
        options = self._options
        if not options.is_local and not (options.certificate and options.key):
            raise PageUnavailable(
                f"at {options.host}, which is no loopback address, the page wants TLS: say"
                " --certificate and --key; or have it on 127.0.0.1, behind a proxy of yours that"
                " vouches for its users (--trust-header)"
            )
        try:
            self._source.state.mkdir(parents=True, exist_ok=True)
            if not options.token and not (file := self._source.state / TOKEN_FILE).exists():
                durable_file.write(file, secrets.token_hex(16), mode=durable_file.OWNER_ONLY)
            token = resolve_password(self._token, os.environ)
        except (PasswordMissing, OSError) as error:
            raise PageUnavailable(f"the page's token: {error}") from error
        if len(token) < SHORTEST_TOKEN:
            raise PageUnavailable(
                f"the token in {self._token} has fewer than {SHORTEST_TOKEN} characters: make one"
                " with `openssl rand -hex 32`"
            )

    def _present_token(self) -> str:
        try:
            return resolve_password(self._token, os.environ)
        except PasswordMissing as error:
            log.warning("%s", error)
            raise web.HTTPServiceUnavailable(text="this page has no token just now") from None

    async def _listen(self, server: AdminServer) -> int:
        options = self._options
        context = None
        if options.certificate:
            paths = (options.certificate, options.key)
            afar = AdminAfar(options.host, options.port or 0, *paths, self._token, os.environ)
            try:
                context = afar.checked()
            except AdminUnavailable as error:
                raise PageUnavailable(str(error).replace("admin: ", "")) from error
        ports = [DEFAULT_PORT, 0] if options.port is None else [options.port]
        for port in ports:
            try:
                return await server.start(options.host, port, context)
            except OSError as error:
                problem = error
        raise PageUnavailable(
            f"cannot listen at {options.host}:{ports[-1]}: {problem.strerror or problem}; say"
            " --listen with another address or port"
        )
