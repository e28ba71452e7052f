"""Endpoints for the proxy's tests: a target that records, and clients with deadlines."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from tests.waiting import until
from wan_proxy import LAN, LineCondition, ProxiedLine, WanProxy

DEADLINE_S = 20.0
"""Nothing here takes so long: it is for a machine that is busy with something else."""


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds; fails with `what` if it does not in time."""
    await until(condition, what, DEADLINE_S, every_s=0.002)


class Accepted:
    """The target's side of one connection: all it got, and how it ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received = bytearray()
        self.end: str | None = None

    def stop_reading(self) -> None:
        """Has the kernel hold a little, and then push back."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        transport: asyncio.Transport = self.writer.transport  # type: ignore[assignment]
        transport.pause_reading()

    async def record(self) -> None:
        try:
            while chunk := await self.reader.read(65536):
                self.received += chunk
            self.end = "FIN"
        except ConnectionError:
            self.end = "RST"


class Target:
    """A server that keeps what each connection sends."""

    def __init__(self) -> None:
        self.connections: list[Accepted] = []
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = Accepted(reader, writer)
        self.connections.append(accepted)
        await accepted.record()

    async def connection(self, index: int = 0) -> Accepted:
        await eventually(lambda: len(self.connections) > index, f"connection {index} at target")
        return self.connections[index]


class Client:
    """A client's side: writes, and records what comes back."""

    def __init__(self, accepted: Accepted) -> None:
        self._side = accepted
        self._recording = asyncio.create_task(accepted.record())

    @classmethod
    async def connect(cls, port: int) -> "Client":
        return cls(Accepted(*await asyncio.open_connection("127.0.0.1", port)))

    @property
    def received(self) -> bytes:
        return bytes(self._side.received)

    @property
    def end(self) -> str | None:
        return self._side.end

    def write(self, data: bytes) -> None:
        self._side.writer.write(data)

    def write_end(self) -> None:
        self._side.writer.write_eof()

    def is_stuck(self) -> bool:
        """Whether what was written does not even fit the socket."""
        return self._side.writer.transport.get_write_buffer_size() > 0

    def reset(self) -> None:
        """RST to the other side."""
        connection = self._side.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._side.writer.transport.abort()

    async def leave(self) -> None:
        self._recording.cancel()
        self._side.writer.transport.abort()


Connect = Callable[[int], Coroutine[Any, Any, Client]]
"""The fixture `connect`: a client of that port, let go at the test's end."""


async def open_line(
    proxy: WanProxy, target: Target, condition: LineCondition | str = LAN, name: str = "paris"
) -> ProxiedLine:
    return await proxy.open_line(name, "127.0.0.1", target.port, condition)


async def linked(line: ProxiedLine, target: Target, connect: Connect) -> tuple[Client, Accepted]:
    """A client and its counterpart at the target, after a byte went each way."""
    index = len(target.connections)
    client = await connect(line.port)
    client.write(b">")
    accepted = await target.connection(index)
    await eventually(lambda: accepted.received == b">", "first byte at the target")
    accepted.writer.write(b"<")
    await eventually(lambda: client.received == b"<", "first byte back")
    accepted.received.clear()
    return client, accepted


def some_bytes(count: int) -> bytes:
    """The same bytes each time, and no two places alike."""
    return random.Random(count).randbytes(count)
