"""Nodes of a stream cluster in a few lines: they log a client in and say where the leader is.

Each listener leads to the nodes behind it in turn, as a load balancer does, or to its only one.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from federation.brokers.endpoint import Endpoint

_RESPONSE = 0x8000
_OK = 1
_NOT_AVAILABLE = 6
_DECLARE_PUBLISHER, _METADATA = 1, 15
_PEER_PROPERTIES, _SASL_HANDSHAKE, _SASL_AUTHENTICATE, _TUNE, _OPEN = 17, 18, 19, 20, 21
_NOBODY = 0xFFFF


@dataclass(eq=False)
class FakeNode:
    """One node. `advertised` is how it calls itself, and how others call it."""

    advertised: Endpoint
    hangs: bool = False
    """True if the node takes connections and says nothing."""
    has_quorum: bool = True
    logins: int = 0


@dataclass(eq=False)
class FakeCluster:
    """Leader of the stream, None while there is none."""

    leader: FakeNode | None = None
    publishers_at: list[FakeNode] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def listening(self, *nodes: FakeNode) -> AsyncIterator[Endpoint]:
        """A port that leads to these nodes, in turn."""
        turns = 0
        sessions: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal turns
            node = nodes[turns % len(nodes)]
            turns += 1
            session = asyncio.ensure_future(_Session(self, node, reader, writer).run())
            sessions.add(session)
            await asyncio.wait({session})
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)


class _Session:
    def __init__(
        self,
        cluster: FakeCluster,
        node: FakeNode,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._cluster, self._node = cluster, node
        self._reader, self._writer = reader, writer

    async def run(self) -> None:
        while True:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
            key, _ = struct.unpack_from(">HH", frame)
            if not self._node.hangs:
                self._answer(key, frame[4:])

    def _answer(self, key: int, body: bytes) -> None:
        correlation = body[:4]
        match key:
            case _ if key == _PEER_PROPERTIES:
                self._respond(key, correlation, _strings({"product": "fake"}))
            case _ if key == _SASL_HANDSHAKE:
                self._respond(key, correlation, struct.pack(">I", 1) + _string("PLAIN"))
            case _ if key == _SASL_AUTHENTICATE:
                self._respond(key, correlation, b"")
                self._send(_TUNE, struct.pack(">II", 1 << 20, 60))
            case _ if key == _OPEN:
                self._node.logins += 1
                host, port, _ = self._node.advertised
                names = {"advertised_host": host, "advertised_port": str(port)}
                self._respond(key, correlation, _strings(names))
            case _ if key == _METADATA:
                self._send(key | _RESPONSE, correlation + self._metadata(body[8:]))
            case _ if key == _DECLARE_PUBLISHER:
                self._cluster.publishers_at.append(self._node)
                self._respond(key, correlation, b"")

    def _metadata(self, stream: bytes) -> bytes:
        """`stream`: its name as it stands in the question."""
        leader = self._cluster.leader
        nodes: Sequence[Endpoint] = [leader.advertised] if leader is not None else []
        brokers = b"".join(
            struct.pack(">H", number) + _string(place.host) + struct.pack(">I", place.port)
            for number, place in enumerate(nodes)
        )
        code = _OK if self._node.has_quorum else _NOT_AVAILABLE
        reference = 0 if leader is not None else _NOBODY
        about = stream + struct.pack(">HHI", code, reference, 0)
        return struct.pack(">I", len(nodes)) + brokers + struct.pack(">I", 1) + about

    def _respond(self, key: int, correlation: bytes, body: bytes) -> None:
        self._send(key | _RESPONSE, correlation + struct.pack(">H", _OK) + body)

    def _send(self, key: int, body: bytes) -> None:
        self._writer.write(struct.pack(">IHH", len(body) + 4, key, 1) + body)


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _strings(texts: dict[str, str]) -> bytes:
    pairs = b"".join(_string(key) + _string(value) for key, value in texts.items())
    return struct.pack(">I", len(texts)) + pairs
