"""Proxied line: a loopback port that leads to a target under conditions that change at run time."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from wan_proxy.condition import LAN, ConditionError, LineCondition
from wan_proxy.connection import ProxiedConnection, Side
from wan_proxy.direction import Direction, DirectionStatistics

Way = Literal["outward", "inward", "both"]
NewConnects = Literal["held", "unanswered"]
BACKLOG = 128


@dataclass(frozen=True, slots=True)
class LineStatistics:
    """Copy of a line's counts.

    `accepted` counts connections since the line was opened, `open` the present ones, `unreachable`
    the ones refused by the target.
    """

    accepted: int
    open: int
    unreachable: int
    outward: DirectionStatistics
    inward: DirectionStatistics

    def to_json(self) -> dict[str, Any]:
        """Return the object form for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "LineStatistics":
        """Read the object of `to_json`."""
        return cls(
            accepted=value["accepted"],
            open=value["open"],
            unreachable=value["unreachable"],
            outward=DirectionStatistics(**value["outward"]),
            inward=DirectionStatistics(**value["inward"]),
        )


class ProxiedLine:
    """Line opened by `WanProxy.open_line`; its port never changes.

    All methods but `stop` act at once and return at once.
    """

    def __init__(
        self,
        name: str,
        target: tuple[str, int],
        condition: LineCondition = LAN,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.target = target
        self._condition = condition
        self._random = random.Random(f"{seed}/{name}")
        self._outward = Direction(condition.outward, condition.round_trip_ms, loop)
        self._inward = Direction(condition.inward, condition.round_trip_ms, loop)
        self._connections: set[ProxiedConnection] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._passable = asyncio.Event()
        self._passable.set()
        self._forgetting: frozenset[str] = frozenset()
        self._all_over = asyncio.Event()
        self._all_over.set()
        self._accepted = 0
        self._unreachable = 0
        self._host = host
        self._listener = LineListener(host, port, self._take)

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        """Loopback port that leads to the target."""
        return self._listener.port

    @property
    def condition(self) -> LineCondition:
        return self._condition

    @property
    def is_cut(self) -> bool:
        """True if at least one direction is silent."""
        return not self._passable.is_set()

    def set(self, condition: LineCondition | str) -> None:
        """Set a condition (or a preset by name), for running connections too.

        Bytes in flight keep their time of arrival. Raise ConditionError for an unknown name.
        """
        chosen = LineCondition.named(condition) if isinstance(condition, str) else condition
        self._condition = chosen
        self._outward.set(chosen.outward, chosen.round_trip_ms)
        self._inward.set(chosen.inward, chosen.round_trip_ms)

    def cut(
        self, way: Way = "both", *, forget: bool = False, new_connects: NewConnects = "held"
    ) -> None:
        """Silence a direction or both, without FIN or RST. Cuts add up until `heal`.

        Bytes are held, and continue after `heal` as after a retransmission of TCP. With `forget`
        they vanish, and `heal` resets the connections from before. New connections are "held"
        (accepted, then silent) or "unanswered" (not accepted).
        """
        if way not in ("outward", "inward", "both"):
            raise ConditionError("way", way, "use outward, inward or both")
        if new_connects not in ("held", "unanswered"):
            raise ConditionError("new_connects", new_connects, "use held or unanswered")
        self._passable.clear()
        if way != "inward":
            self._outward.cut()
        if way != "outward":
            self._inward.cut()
        if forget:
            self._forgetting |= {"outward", "inward"} if way == "both" else {way}
            for connection in tuple(self._connections):
                self._forget(connection)
        if new_connects == "unanswered":
            self._listener.leave_unanswered()

    def heal(self) -> None:
        """End all cuts. Forgotten and half-open connections get their RST now."""
        self._forgetting = frozenset()
        for connection in tuple(self._connections):
            if connection.is_forgotten:
                connection.reset()
        self._outward.heal()
        self._inward.heal()
        self._passable.set()
        self._listener.answer()

    def reset(self) -> None:
        """Send RST to both ends of every connection at once; the line accepts new ones."""
        for connection in tuple(self._connections):
            connection.reset()

    def close(self) -> None:
        """Send FIN to both ends of every connection; bytes in flight are lost, new connections
        work.

        The line itself is ended by `WanProxy.close_line`.
        """
        for connection in tuple(self._connections):
            connection.finish()

    def half_open(self, kept: Side) -> None:
        """Reset one end of every connection and leave the `kept` side ("client" or "target")
        unaware.

        New connections work. `heal` resets the kept side.
        """
        if kept not in ("client", "target"):
            raise ConditionError("kept", kept, "use client or target")
        for connection in tuple(self._connections):
            connection.half_open(kept)

    def statistics(self) -> LineStatistics:
        """Return the counts since the line was opened."""
        return LineStatistics(
            accepted=self._accepted,
            open=len(self._connections),
            unreachable=self._unreachable,
            outward=self._outward.statistics(),
            inward=self._inward.statistics(),
        )

    async def stop(self) -> None:
        """Stop listening and reset every connection; return when all sockets are closed."""
        self._listener.close()
        self.reset()
        await self._all_over.wait()
        while self._opening:
            await asyncio.wait(self._opening)
        self._outward.close()
        self._inward.close()

    def _take(self, accepted: socket.socket) -> None:
        self._accepted += 1
        connection = ProxiedConnection(
            self._outward, self._inward, random.Random(self._random.random()), self._over
        )
        self._connections.add(connection)
        self._all_over.clear()
        if self._forgetting:
            self._forget(connection)
        task = asyncio.create_task(self._open(connection, accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, connection: ProxiedConnection, accepted: socket.socket) -> None:
        if not await connection.open(accepted, self.target, self._passable):
            self._unreachable += 1

    def _forget(self, connection: ProxiedConnection) -> None:
        connection.forget(
            *(getattr(connection, way) for way in ("outward", "inward") if way in self._forgetting)
        )

    def _over(self, connection: ProxiedConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_over.set()


class LineListener:
    """Listening socket on loopback; may leave connects unanswered, as a dead route does."""

    def __init__(self, host: str, port: int, on_accepted: Callable[[socket.socket], None]) -> None:
        self._on_accepted = on_accepted
        self._loop = asyncio.get_running_loop()
        self._plug: socket.socket | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind((host, port))
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._accept_all)

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def leave_unanswered(self) -> None:
        """Give connects no answer at all from now on.

        Linux drops a SYN when the accept queue is full: so the queue is made as short as possible,
        plugged with a connection of our own, and nothing more is accepted.
        """
        if self._plug is not None:
            return
        self._accept_all()
        self._loop.remove_reader(self._socket)
        self._socket.listen(0)
        self._plug = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._plug.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # "in progress", as wanted
            self._plug.connect(self._socket.getsockname())

    def answer(self) -> None:
        """Accept again; waiting connects come when their kernels retry."""
        if self._plug is None:
            return
        plug, self._plug = self._plug, None
        self._socket.listen(BACKLOG)
        self._accept_all(skip=plug.getsockname())
        plug.close()
        self._loop.add_reader(self._socket, self._accept_all)

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self._plug is not None:
            self._plug.close()
            self._plug = None

    def _accept_all(self, skip: tuple[str, int] | None = None) -> None:
        while True:
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            if peer == skip:
                accepted.close()
                continue
            accepted.setblocking(False)
            self._on_accepted(accepted)
