"""Coordination in ZooKeeper, which only this file imports.

The client has threads of its own: a stalled event loop does not end the session. A suspended
connection is no lost session; a lost one is followed by a new session, without the entries of the
one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from federation.mesh import TlsFiles
from relay.cluster.coordination import (
    CoordinationAway,
    CoordinationEntry,
    CoordinationRefused,
)
from relay.waiters import Waiters

log = logging.getLogger(__name__)

_REFUSALS = (AuthFailedError, NoAuthError, InvalidACLError, BadArgumentsError)
_RECONNECT = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperAccess:
    """Way to the ensemble of a site. `user` empty: without a password, and open to everybody."""

    hosts: str
    """HOST:PORT, separated by commas."""
    root: str
    """Path below which the site's entries are."""
    session_s: float = 2.0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: TlsFiles | None = None
    """Files for TLS; None: in clear."""


class _LastWarning(logging.Handler):
    """Last of a client's warnings, which alone say why there is no connection. Not for the log: a
    client has several lines for each attempt.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        self.logger = logging.Logger("kazoo", logging.WARNING)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage().splitlines()[0]


def _tls_options(files: TlsFiles | None) -> dict[str, Any]:
    """Return the client's options, which checks the members' certificates and host names."""
    if files is None:
        return {}
    return {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": True,
        "ca": files.ca or None,
        "certfile": files.certificate or None,
        "keyfile": files.key or None,
    }


class ZookeeperCoordination:
    """`Coordination` over a client that was given to `start`."""

    def __init__(self, access: ZookeeperAccess) -> None:
        self._loop = asyncio.get_running_loop()
        self._access = access
        self._steady_since: float | None = None
        self._changes = Waiters()
        auth, acl = None, None
        if access.user:
            auth = [("digest", f"{access.user}:{access.password}")]
            acl = [make_digest_acl(access.user, access.password, all=True)]
        self._warnings = _LastWarning()
        self._client = KazooClient(
            hosts=access.hosts,
            timeout=access.session_s,
            connection_retry=_RECONNECT.copy(),
            auth_data=auth,
            default_acl=acl,
            **_tls_options(access.tls),
            logger=self._warnings.logger,
        )
        self._client.add_listener(self._on_state)

    def start(self) -> None:
        """Begin to connect; calls fail until there is a connection."""
        self._client.start_async()

    def _on_state(self, state: str) -> None:
        # Called by the client's thread.
        self._loop.call_soon_threadsafe(self._take_state, state)

    def _on_event(self, _: object) -> None:
        # Called by the client's thread.
        self._loop.call_soon_threadsafe(self._changes.wake)

    def _take_state(self, state: str) -> None:
        log.info("ZooKeeper: %s", state.lower(), extra={"event": "zookeeper-state"})
        self._steady_since = None
        if state == KazooState.CONNECTED:
            self._steady_since, self._warnings.text = self._loop.time(), ""
        self._changes.wake()

    @property
    def steady_since(self) -> float | None:
        return self._steady_since

    async def _ask(self, call: Callable[..., Any], path: str, *values: Any, **more: Any) -> Any:
        """Return the result of an asynchronous call of the client. Raises NodeExistsError,
        NoNodeError, CoordinationAway, CoordinationRefused.
        """
        if self._steady_since is None:
            # The client would keep the request, and make it whenever it is connected again.
            raise CoordinationAway(f"not connected; {self._warnings.text}".rstrip("; "))
        answer: asyncio.Future[Any] = self._loop.create_future()

        def finish(result: Any) -> None:
            if answer.done():
                return
            if result.exception is None:
                answer.set_result(result.value)
            else:
                answer.set_exception(result.exception)

        result = call(f"{self._access.root}/{path}", *values, **more)
        result.rawlink(lambda done: self._loop.call_soon_threadsafe(finish, done))
        try:
            async with asyncio.timeout(self._access.session_s):
                return await answer
        except (NodeExistsError, NoNodeError):
            raise
        except _REFUSALS as error:
            raise CoordinationRefused(repr(error)) from error
        except (KazooException, KazooTimeoutError, TimeoutError) as error:
            raise CoordinationAway(repr(error)) from error

    async def add(self, path: str, data: bytes) -> bool:
        try:
            await self._ask(self._client.create_async, path, data, ephemeral=True, makepath=True)
        except NodeExistsError:
            return False
        return True

    async def read(self, path: str) -> CoordinationEntry | None:
        try:
            data, found = await self._ask(self._client.get_async, path)
        except NoNodeError:
            return None
        return self._entry(data, found)

    def _entry(self, data: bytes, found: Any) -> CoordinationEntry:
        session = self._client.client_id
        return CoordinationEntry(data, session is not None and found.owner_session_id == session[0])

    async def remove(self, path: str) -> None:
        try:
            await self._ask(self._client.delete_async, path)
        except NoNodeError:
            return

    async def names(self, folder: str) -> list[str]:
        try:
            return sorted(await self._ask(self._client.get_children_async, folder))
        except NoNodeError:
            return []

    async def changed(self, path: str, seen: CoordinationEntry | None) -> None:
        since = self._steady_since
        while True:
            found = None
            # Set before the entry is read; this kind of watch sees entries come as well as go.
            if await self._ask(self._client.exists_async, path, watch=self._on_event) is not None:
                found = await self.read(path)
            if found != seen or self._steady_since != since:
                return
            await self._changes.wait()
            if self._steady_since != since:
                return

    async def close(self) -> None:
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        # Where its thread does not end, which tries to connect: the session ends by itself.
        with contextlib.suppress(KazooException, OSError):
            self._client.stop()
            self._client.close()
