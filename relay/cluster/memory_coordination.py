"""Coordination in memory, for simulation and tests, with the faults of a distant ensemble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from relay.cluster.coordination import CoordinationAway, CoordinationEntry
from relay.waiters import Waiters


async def _at_once() -> None:
    await asyncio.sleep(0)


class MemoryEnsemble:
    """Ensemble's side, which outlives all nodes."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[bytes, object]] = {}
        """Path -> data, and the session whose entry it is."""
        self.away = False
        """True while no majority answers anybody."""
        self.changes = Waiters()
        self.sessions: list[MemoryCoordination] = []

    def expire(self, session: object) -> None:
        """Remove all entries of a session."""
        for path in [path for path, (_, whose) in self.entries.items() if whose is session]:
            del self.entries[path]
        self.changes.wake()

    def expire_all(self) -> None:
        """Expire the sessions of all nodes at once; each node gets a new one."""
        for session in self.sessions:
            session.expire()


class MemoryCoordination:
    """`Coordination` of one node. Each step awaits `delay`."""

    def __init__(
        self, ensemble: MemoryEnsemble, delay: Callable[[], Awaitable[None]] = _at_once
    ) -> None:
        self._ensemble = ensemble
        self._delay = delay
        self._session = object()
        self._connected_since: float | None = asyncio.get_running_loop().time()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.lost_answers = 0
        """Number of next calls that are done, and whose answer never comes."""
        ensemble.sessions.append(self)

    @property
    def steady_since(self) -> float | None:
        return None if self._ensemble.away else self._connected_since

    @property
    def away(self) -> bool:
        """True while the ensemble does not answer this node. May be set."""
        return self._connected_since is None

    @away.setter
    def away(self, is_away: bool) -> None:
        self._connected_since = None if is_away else asyncio.get_running_loop().time()
        self._ensemble.changes.wake()

    def expire(self) -> None:
        """Lose the session, and begin a new one."""
        former, self._session = self._session, object()
        if not self.away:
            self._connected_since = asyncio.get_running_loop().time()
        self._ensemble.expire(former)

    def vanish(self) -> None:
        """Carry out nothing more, as for a killed process; its session lasts until `expire`."""
        if self in self._ensemble.sessions:
            self._ensemble.sessions.remove(self)
        self.away = True

    def freeze(self) -> None:
        """Have no call of this node get on, as in a paused process, whose session expires."""
        self._thawed.clear()
        self.expire()

    def thaw(self) -> None:
        """Let this node's calls get on."""
        self._thawed.set()

    async def _ask(self) -> None:
        await self._delay()
        await self._thawed.wait()
        if self.away or self._ensemble.away:
            raise CoordinationAway("no ensemble in memory")

    async def _answer(self) -> None:
        await self._delay()
        if self.lost_answers:
            self.lost_answers -= 1
            raise CoordinationAway("the answer was lost")

    async def add(self, path: str, data: bytes) -> bool:
        await self._ask()
        is_free = path not in self._ensemble.entries
        if is_free:
            self._ensemble.entries[path] = (data, self._session)
            self._ensemble.changes.wake()
        await self._answer()
        return is_free

    async def read(self, path: str) -> CoordinationEntry | None:
        await self._ask()
        found = self._found(path)
        await self._answer()
        return found

    def _found(self, path: str) -> CoordinationEntry | None:
        if path not in self._ensemble.entries:
            return None
        data, whose = self._ensemble.entries[path]
        return CoordinationEntry(data, whose is self._session)

    async def remove(self, path: str) -> None:
        await self._ask()
        if self._ensemble.entries.pop(path, None) is not None:
            self._ensemble.changes.wake()
        await self._answer()

    async def names(self, folder: str) -> list[str]:
        await self._ask()
        inside = f"{folder}/"
        found = sorted(
            path.removeprefix(inside)
            for path in self._ensemble.entries
            if path.startswith(inside) and "/" not in path.removeprefix(inside)
        )
        await self._answer()
        return found

    async def changed(self, path: str, seen: CoordinationEntry | None) -> None:
        await self._ask()
        since = self._connected_since
        while self._found(path) == seen and self._connected_since == since:
            await self._ensemble.changes.wait()
        await self._thawed.wait()

    async def close(self) -> None:
        if self in self._ensemble.sessions:
            self.vanish()
            self._ensemble.expire(self._session)
