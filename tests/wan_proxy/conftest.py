"""What the proxy's tests stand on: a proxy, a target, and clients that are let go at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.wan_proxy.endpoints import Client, Target
from wan_proxy import WanProxy


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What touches sockets runs on both loops: they differ in when a protocol may begin paused,
    in who keeps what is written, and the proxy's own process runs on the one, tests on the other.
    """
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.path.name.startswith("test_line"):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


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
