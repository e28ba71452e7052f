"""Both event loops for what runs against a scripted peer."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

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
