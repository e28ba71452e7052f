"""What the proxy's tests stand on: a proxy, a target, and clients that are let go at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from wan_proxy import WanProxy

from .endpoints import Client, Target


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    target = Target()
    server = await asyncio.start_server(target.accept, "127.0.0.1", 0)
    target.port = server.sockets[0].getsockname()[1]
    yield target
    server.close()
    for accepted in target.connections:
        accepted.writer.transport.abort()


@pytest.fixture
async def proxy() -> AsyncIterator[WanProxy]:
    async with WanProxy(seed=7) as proxy:
        yield proxy


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[int], Coroutine[Any, Any, Client]]]:
    clients: list[Client] = []

    async def connect(port: int) -> Client:
        client = await Client.connect(port)
        clients.append(client)
        return client

    yield connect
    for client in clients:
        await client.leave()
