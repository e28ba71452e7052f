"""A broker of a few lines that logs a client in, and then does only what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from pamqp import base as pamqp_base
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp import header as pamqp_header
from pamqp import heartbeat as pamqp_heartbeat

from tests.relay.bulk_amqp import wire

_Frame = TypeVar("_Frame")
Script = Callable[["Client"], Awaitable[None]]


async def forever() -> None:
    """For a peer that says nothing more and keeps the socket."""
    await asyncio.get_running_loop().create_future()


class Client:
    """The other end of one connection, as the fake broker sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heartbeats = 0

    def send(self, channel: int, frame: pamqp_base.Frame) -> None:
        self.writer.write(wire.method(channel, frame))

    async def next_frame(self) -> tuple[int, object]:
        """Channel and frame; heartbeats are counted and stepped over."""
        while True:
            start = await self.reader.readexactly(7)
            size = struct.unpack(">I", start[3:])[0]
            data = start + await self.reader.readexactly(size + 1)
            _, channel, frame = pamqp_frame.unmarshal(data)
            if not isinstance(frame, pamqp_heartbeat.Heartbeat):
                return channel, frame
            self.heartbeats += 1

    async def expect(self, kind: type[_Frame]) -> _Frame:
        _, frame = await self.next_frame()
        assert isinstance(frame, kind), frame
        return frame

    async def greet(self) -> None:
        """Up to and with connection.start."""
        assert await self.reader.readexactly(8) == b"AMQP\x00\x00\x09\x01"
        self.send(0, commands.Connection.Start(mechanisms="AMQPLAIN PLAIN", server_properties={}))

    async def log_in(self, *, heartbeat: int = 60, frame_max: int = wire.FRAME_MAX) -> None:
        """The whole login; what the client agreed to is in ``tune``."""
        await self.greet()
        await self.expect(commands.Connection.StartOk)
        self.send(0, commands.Connection.Tune(100, frame_max, heartbeat))
        self.tune = await self.expect(commands.Connection.TuneOk)
        await self.expect(commands.Connection.Open)
        self.send(0, commands.Connection.OpenOk())

    async def open_channel(self) -> int:
        channel, frame = await self.next_frame()
        assert isinstance(frame, commands.Channel.Open)
        self.send(channel, commands.Channel.OpenOk())
        return channel

    async def take_publishes(self, count: int) -> None:
        """Read ``count`` messages, bodies included."""
        while count:
            _, frame = await self.next_frame()
            missing = frame.body_size if isinstance(frame, pamqp_header.ContentHeader) else None
            while missing:
                missing -= len((await self.next_frame())[1].value)  # type: ignore[attr-defined]
            count -= missing is not None


@contextlib.asynccontextmanager
async def fake_broker(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve ``script`` to each client; gives the URI. A script that fails fails the test."""
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(_run(script, Client(reader, writer))))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"{'amqps' if tls else 'amqp'}://user:secret@127.0.0.1:{port}/v"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def _run(script: Script, client: Client) -> None:
    try:
        await script(client)
    except (OSError, asyncio.IncompleteReadError):
        return  # the client left, as many tests want it to
    finally:
        client.writer.close()
