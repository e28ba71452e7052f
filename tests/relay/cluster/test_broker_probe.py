"""Probe of the broker by a node of several: when it gets no slots, and gives its own away."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from federation.brokers.addresses import AddressBook
from relay.bulk_amqp import Connection, ConnectionFailed
from relay.cluster.broker_probe import CUT_OFF_AFTER, EVERY_S, UNFIT_AFTER, BrokerProbe
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.site_entries import ClusterMember, SiteEntries
from relay.node.brokers import Brokers
from tests.virtual_time import in_virtual_time, let_pass


class Broker:
    """Broker that answers, refuses, or says nothing; and the connections that it has."""

    def __init__(self) -> None:
        self.answers: str = "yes"
        self.books: list[object] = []
        self.open = 0

    async def connect(self, book: object, site: str, purpose: str) -> Connection:
        self.books.append(book)
        if self.answers == "refuses":
            raise ConnectionFailed("refused")
        if self.answers == "silent":
            await asyncio.Event().wait()
        self.open += 1
        return cast(Connection, self)

    async def close(self) -> None:
        self.open -= 1


@in_virtual_time
async def test_a_node_is_unfit_after_some_failures_cut_off_after_more_and_fit_at_once() -> None:
    broker = Broker()
    entries = SiteEntries(
        MemoryCoordination(MemoryEnsemble()), ClusterMember("a", "run", "place"), 4, 2.0, copies=2
    )
    book: Mapping[str, Any] = {"book": 1}
    probe = BrokerProbe(cast(Brokers, broker), "paris", lambda: cast(AddressBook, book))
    running = asyncio.create_task(probe.run(entries))
    await let_pass(4 * EVERY_S)
    assert (entries.is_fit, entries.is_cut_off, broker.open) == (True, False, 0)
    assert await entries.look_if_fit()
    broker.answers = "refuses"
    await let_pass(UNFIT_AFTER * EVERY_S)
    assert (entries.is_fit, entries.is_cut_off) == (False, False)
    assert not await entries.look_if_fit()
    await let_pass((CUT_OFF_AFTER - UNFIT_AFTER) * EVERY_S)
    assert (entries.is_fit, entries.is_cut_off) == (False, True)
    broker.answers = "yes"
    await let_pass(EVERY_S)
    assert (entries.is_fit, entries.is_cut_off) == (True, False)
    broker.answers = "silent"
    await let_pass(3 * UNFIT_AFTER * EVERY_S)
    assert not entries.is_fit
    book = {"book": 2}
    broker.answers = "yes"
    await let_pass(3 * EVERY_S)
    assert entries.is_fit
    assert broker.books[-1] == {"book": 2}, "the present addresses"
    running.cancel()
