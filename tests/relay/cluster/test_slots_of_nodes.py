"""Nodes that share the slots of a site: slots even out, rest, and follow who is there."""

from __future__ import annotations

import asyncio
import random

import pytest

from relay.node.machine import GivingRefused
from tests.relay.cluster.slot_site import SESSION_S, SLOTS, Site, running
from tests.virtual_time import in_virtual_time, let_pass


@in_virtual_time
async def test_nodes_that_start_together_share_the_slots_without_a_move() -> None:
    async with running("a", "b", "c", for_s=SESSION_S + 3) as site:
        assert site.counts == [2, 3, 3]
        before = site.shares
        await let_pass(120)
        assert site.shares == before
        assert site.taken == SLOTS


@in_virtual_time
async def test_slots_even_out_one_by_one_as_nodes_come_and_then_rest() -> None:
    async with running("a", for_s=SESSION_S + 1) as site:
        assert site.counts == [SLOTS]
        site.start("b")
        await let_pass(60)
        assert site.counts == [4, 4]
        assert site.taken == SLOTS + 4
        site.start("c")
        await let_pass(60)
        assert site.counts == [2, 3, 3]
        assert site.taken == SLOTS + 4 + 2
        await let_pass(100)
        assert site.taken == SLOTS + 4 + 2


@in_virtual_time
async def test_the_slots_of_a_dead_node_are_shared_out_when_its_session_ends() -> None:
    async with running("a", "b", "c") as site:
        taken = site.taken
        lost = len(site.nodes["b"].held)
        await site.nodes["b"].kill()
        await let_pass(SESSION_S + 0.5)
        assert site.counts == [4, 4]
        assert site.taken == taken + lost


@in_virtual_time
async def test_the_slots_of_a_node_that_ends_in_order_are_taken_at_once() -> None:
    async with running("a", "b", "c") as site:
        await site.nodes["b"].stop()
        await let_pass(0.5)
        assert site.counts == [4, 4]
        await site.nodes["a"].stop()
        await let_pass(0.5)
        assert site.counts == [SLOTS]


@in_virtual_time
async def test_nothing_moves_when_all_sessions_expire_at_once() -> None:
    async with running("a", "b", "c") as site:
        before, taken = site.shares, site.taken
        for _ in range(5):
            site.ensemble.expire_all()
            await let_pass(7)
        assert (site.shares, site.taken) == (before, taken)


@in_virtual_time
async def test_an_operator_moves_a_slot_which_then_stays_until_that_node_is_gone() -> None:
    async with running("a", "b") as site:
        moved = list(site.nodes["a"].held)[:2]
        for slot in moved:
            await site.nodes["a"].held[slot]("b")
            await let_pass(1)
        assert site.counts == [2, 6]
        await let_pass(60)
        # Of those that were not moved by hand some may go back.
        assert site.counts == [4, 4]
        assert set(moved) <= set(site.nodes["b"].held)
        await site.nodes["b"].stop()
        await let_pass(1)
        assert site.counts == [SLOTS]


@in_virtual_time
async def test_a_slot_goes_to_no_node_that_is_not_there_or_not_up_to_date() -> None:
    async with running("a", for_s=5) as site:
        give = site.nodes["a"].held[0]
        with pytest.raises(GivingRefused, match="there is no node b; the site has a now"):
            await give("b")
        with pytest.raises(GivingRefused, match="a has slot 0"):
            await give("a")
        site.start("b")
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        await let_pass(5)
        with pytest.raises(GivingRefused, match="b has not read the journal of slot 0 to its end"):
            await give("b")
        site.ensemble.away = True
        with pytest.raises(GivingRefused, match="nobody knows which nodes are there"):
            await give("b")
        await let_pass(60)
        assert site.shares == {"a": list(range(SLOTS)), "b": []}
        site.ensemble.away = False


async def in_other_hands(site: Site, node: str, seconds: float) -> None:
    """Let time pass in which others have all slots, but for a takeover, and none moves."""
    await let_pass(4 * SESSION_S)
    taken = site.taken
    for _ in range(int(seconds)):
        await let_pass(1)
        held = sorted(slot for name, slots in site.shares.items() if name != node for slot in slots)
        assert held == list(range(SLOTS)), site.shares
    assert site.taken == taken


@in_virtual_time
async def test_a_node_that_has_lost_the_journal_gets_no_slots() -> None:
    async with running("a", "b") as site:
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        site.start("c")
        await let_pass(60)
        await site.nodes["b"].stop()
        site.start("b")
        for journal in site.nodes["b"].journals:
            journal.trouble.away = True
        await in_other_hands(site, "b", 120)
        await site.nodes["a"].kill()
        await in_other_hands(site, "b", 120)
        for journal in site.nodes["b"].journals:
            journal.trouble.away = False
        await let_pass(60)
        assert site.counts == [4, 4]


@in_virtual_time
async def test_a_node_that_has_lost_the_journal_of_one_slot_is_given_none() -> None:
    async with running("a", "b", "c", copies=1) as site:
        followed = next(slot for slot in range(SLOTS) if "c" in site.copies_of(slot))
        site.nodes["c"].journals[followed].trouble.away = True
        await let_pass(30)
        assert "unfit/c" in site.ensemble.entries
        await let_pass(0.3)
        for _ in range(20):
            await let_pass(1.1)
            assert "unfit/c" in site.ensemble.entries
        site.nodes["c"].journals[followed].trouble.away = False
        await let_pass(30)
        assert "unfit/c" not in site.ensemble.entries


@in_virtual_time
async def test_a_node_that_does_not_reach_the_broker_gets_no_slots_and_gives_its_own_away() -> None:
    async with running("a", "b", "c") as site:
        await site.nodes["b"].lose_broker()
        await let_pass(60)
        await in_other_hands(site, "b", 60)
        # Where nobody reaches it, who has the slots matters no more.
        await asyncio.gather(site.nodes["a"].lose_broker(), site.nodes["c"].lose_broker())
        before, taken = site.shares, site.taken
        await let_pass(120)
        assert (site.shares, site.taken) == (before, taken)
        for node in site.nodes.values():
            node.find_broker()
        await let_pass(60)
        assert site.counts == [2, 3, 3]


@in_virtual_time
async def test_a_slot_that_an_operator_placed_stays_so_when_sessions_end() -> None:
    async with running("a", "b") as site:
        moved = list(site.nodes["a"].held)[:2]
        for slot in moved:
            await site.nodes["a"].held[slot]("b")
            await let_pass(1)
        await let_pass(60)
        site.ensemble.expire_all()
        await let_pass(10)
        site.start("c")
        await let_pass(60)
        assert site.counts == [2, 3, 3]
        assert set(moved) <= set(site.nodes["b"].held)


@in_virtual_time
async def test_a_node_whose_slots_end_slowly_is_given_no_other() -> None:
    async with running("a", "b", "c") as site:
        node = site.nodes["b"]
        node.ends_within_s = 12.0
        slow = asyncio.create_task(node.stop())
        await let_pass(30)
        await slow
        await let_pass(1)
        assert site.counts == [4, 4]


@in_virtual_time
@pytest.mark.parametrize("seed", range(20))
async def test_all_slots_are_held_once_however_nodes_come_and_go(seed: int) -> None:
    site, chance = Site(copies=1 + seed % 2), random.Random(seed)
    names = list("abcd")
    site.start("a")
    for _ in range(12):
        await let_pass(chance.uniform(0, 8))
        absent = [name for name in names if name not in site.nodes]
        what = chance.choice(("start", "stop", "kill", "expire"))
        if what == "start" or len(site.nodes) < 2:
            site.start(*absent[:1])
        elif what == "expire":
            site.ensemble.expire_all()
        else:
            node = site.nodes[chance.choice(list(site.nodes))]
            await (node.stop() if what == "stop" else node.kill())
    await let_pass(90)
    counts = site.counts
    assert max(counts) - min(counts) <= 1
    taken = site.taken
    await let_pass(60)
    assert site.taken == taken, "they rest"
    await site.stop()


@in_virtual_time
async def test_few_nodes_follow_each_slot_and_slots_even_out_all_the_same() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        assert site.counts == [2, 2, 2, 2]
        assert site.copies_of_each == [1] * SLOTS
        site.start("e", "f", "g", "h")
        await let_pass(300)
        assert site.counts == [1] * SLOTS
        taken = site.taken
        await let_pass(60)
        assert site.copies_of_each == [1] * SLOTS
        assert site.taken == taken


@in_virtual_time
async def test_the_slots_of_a_dead_node_go_to_those_that_have_copies_and_others_begin_some() -> (
    None
):
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        copies = {slot: site.copies_of(slot) for slot in site.nodes["b"].held}
        await site.nodes["b"].kill()
        await let_pass(SESSION_S + 0.5)
        for slot, nodes in copies.items():
            assert {name for name, held in site.shares.items() if slot in held} == nodes
        await let_pass(90)
        assert site.counts == [2, 3, 3]
        assert site.copies_of_each == [1] * SLOTS


@in_virtual_time
async def test_a_slot_leaves_its_owner_and_the_nodes_with_copies_that_all_lost_the_broker() -> None:
    async with running("a", "b", "c", "d", "e", "f", for_s=60) as site:
        slot, *_ = site.nodes["f"].held
        lost = {"f", *site.copies_of(slot)}
        assert len(lost) == 3
        await asyncio.gather(*(site.nodes[name].lose_broker() for name in lost))
        await let_pass(180)
        assert all(not site.shares[name] for name in lost), site.shares
        assert len(site.counts) == 6


async def order_to_a_node_without_a_copy(site: Site) -> tuple[int, str]:
    """Order a slot of `a` to a node that does not follow its journal; return both."""
    slot, give = next(iter(site.nodes["a"].held.items()))
    to = next(name for name in "bcd" if name not in site.copies_of(slot))
    with pytest.raises(GivingRefused, match="it gets the slot as soon as it has, within 10 min"):
        await give(to)
    return slot, to


@in_virtual_time
async def test_a_node_that_an_operator_gives_a_slot_reads_its_journal_first() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        slot, to = await order_to_a_node_without_a_copy(site)
        await let_pass(90)
        assert slot in site.nodes[to].held
        assert site.counts == [2, 2, 2, 2]
        assert site.copies_of_each == [1] * SLOTS


@in_virtual_time
async def test_a_slot_whose_owner_ends_goes_to_a_copy_and_not_to_who_still_reads() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        for node in site.nodes.values():
            for journal in node.journals if node.name != "a" else ():
                journal.trouble.away = True  # nobody reads on
        slot, to = await order_to_a_node_without_a_copy(site)
        (copy,) = site.copies_of(slot) or {""}
        for journal in (journal for node in site.nodes.values() for journal in node.journals):
            journal.trouble.away = False
        await site.nodes["a"].stop()
        await let_pass(1)
        assert slot in site.nodes[copy].held
        assert slot not in site.nodes[to].held


@in_virtual_time
async def test_who_follows_what_stays_while_the_ensemble_is_away() -> None:
    async with running("a", "b", "c", "d", for_s=60, copies=1) as site:
        for node in site.nodes.values():
            node.coordination.away = True  # each connection breaks
        await let_pass(5)
        before = {name: [one.reads for one in node.journals] for name, node in site.nodes.items()}
        await let_pass(60)
        read = {
            (slot, name)
            for name, node in site.nodes.items()
            for slot, journal in enumerate(node.journals)
            if journal.reads > before[name][slot]
        }
        for node in site.nodes.values():
            node.coordination.away = False
        await let_pass(30)
        assert read == {(slot, name) for slot in range(SLOTS) for name in site.copies_of(slot)}
