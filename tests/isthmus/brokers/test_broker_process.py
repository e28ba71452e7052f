"""A private broker under the supervisor: how long it may take to start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from isthmus.brokers.errors import BrokerStartError
from isthmus.up.supervised import BrokerProcess, ChildStartError


class SlowBroker:
    """Needs so many seconds to start, and never takes them."""

    def __init__(self, needs_s: float) -> None:
        self.spec = SimpleNamespace(name="paris")
        self.needs_s = needs_s
        self.given_s: list[float] = []

    async def start(self, *, deadline_s: float) -> None:
        self.given_s.append(deadline_s)
        if deadline_s < self.needs_s:
            raise BrokerStartError("paris", "was not ready in time", Path("rabbit.log"), ())


def supervised(broker: SlowBroker) -> BrokerProcess:
    return BrokerProcess(cast(Any, broker), start_limit_s=60)


async def test_a_broker_that_was_not_ready_in_time_is_given_twice_as_long() -> None:
    broker = SlowBroker(needs_s=200)
    child = supervised(broker)
    for _ in range(2):
        with pytest.raises(ChildStartError, match="was not ready in time"):
            await child.start()
    await child.start()
    assert broker.given_s == [60, 120, 240]


async def test_once_it_has_started_it_is_given_what_it_was_at_first() -> None:
    broker = SlowBroker(needs_s=100)
    child = supervised(broker)
    with pytest.raises(ChildStartError):
        await child.start()
    await child.start()
    broker.needs_s = 10
    await child.start()
    assert broker.given_s == [60, 120, 60]


async def test_no_start_is_given_more_than_eight_times_as_long() -> None:
    broker = SlowBroker(needs_s=10_000)
    child = supervised(broker)
    for _ in range(6):
        with pytest.raises(ChildStartError):
            await child.start()
    assert broker.given_s == [60, 120, 240, 480, 480, 480]
