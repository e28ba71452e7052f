"""Both event loops for what runs against a scripted peer; connections to a real broker."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from relay.bulk_amqp import Connection, connect
from tests.live_brokers import Vhost
from tests.relay.bulk_amqp.live_channels import Connect

SCRIPTED = {"test_connection.py", "test_consumer.py", "test_login.py"}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops differ in their transports, and the connection is one's protocol."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.path.name in SCRIPTED:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
async def connected(vhost: Vhost) -> AsyncIterator[Connect]:
    """Connections to the test's virtual host, closed at its end."""
    made: list[Connection] = []

    async def make(**options: object) -> Connection:
        made.append(await connect(vhost.amqp_uri, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for connection in made:
        await connection.close()
