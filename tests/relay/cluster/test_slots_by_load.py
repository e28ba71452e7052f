"""Slots move by what they handle until the nodes handle as much, and then rest."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.relay.cluster.slot_site import SLOTS, Site, running
from tests.virtual_time import in_virtual_time, let_pass


@asynccontextmanager
async def with_a_busy_slot() -> AsyncIterator[Site]:
    """Run a site whose first slot handles more than all others together, until its slots rest."""
    async with running("a", "b") as site:
        site.handle({0: 9000})
        await let_pass(300)
        assert sorted(map(len, site.shares.values())) == [1, SLOTS - 1]
        yield site


@in_virtual_time
async def test_slots_move_until_the_nodes_handle_as_much_and_then_rest() -> None:
    async with running("a", "b") as site:
        site.handle(dict.fromkeys(range(SLOTS), 1000) | {0: 6000})
        await let_pass(300)
        # A slot more counts as a thousand messages a second.
        assert site.loads == [5000, 8000]
        assert site.counts == [3, 5]
        taken = site.taken
        await let_pass(600)
        assert site.taken == taken


@in_virtual_time
async def test_loads_that_waver_move_nothing() -> None:
    async with running("a", "b", "c") as site:
        chance = random.Random(1)
        site.handle(dict.fromkeys(range(SLOTS), 2000))
        await let_pass(120)
        taken = site.taken
        for _ in range(120):
            site.handle({slot: chance.randint(1700, 2300) for slot in range(SLOTS)})
            await let_pass(5)
        assert site.taken == taken


@in_virtual_time
async def test_a_slot_that_is_busy_every_other_minute_stays_where_it_is() -> None:
    async with running("a", "b") as site:
        site.handle({0: 6000})
        await let_pass(300)
        taken = site.taken
        for turn in range(10):
            site.handle({0: 1000 if turn % 2 else 6000})
            await let_pass(120)
        assert site.taken == taken


@in_virtual_time
async def test_a_node_whose_slots_end_slowly_gives_one_at_a_time() -> None:
    async with running("a", "b", for_s=60) as site:
        node = next(node for node in site.nodes.values() if 0 in node.held)
        node.ends_within_s = 12.0
        site.handle({0: 20_000})
        taken = site.taken
        await let_pass(600)
        assert sorted(map(len, site.shares.values())) == [1, SLOTS - 1]
        assert site.taken == taken + 3


@in_virtual_time
async def test_a_node_that_is_back_later_than_the_others_finds_its_slots_as_they_were() -> None:
    async with with_a_busy_slot() as site:
        before, taken = site.shares, site.taken
        busy = next(node for node in site.nodes.values() if 0 in node.held)
        for _ in range(3):
            busy.coordination.away = True
            site.ensemble.expire_all()
            await let_pass(1.5)
            busy.coordination.away = False
            await let_pass(70)
        assert (site.shares, site.taken) == (before, taken)


@in_virtual_time
async def test_what_slots_handle_is_known_after_all_sessions_expired() -> None:
    async with with_a_busy_slot() as site:
        taken = site.taken
        for _ in range(3):
            site.ensemble.expire_all()
            await let_pass(70)
        site.start("c")
        await let_pass(200)
        assert sorted(map(len, site.shares.values())) == [1, 3, 4]
        assert site.taken <= taken + 4
