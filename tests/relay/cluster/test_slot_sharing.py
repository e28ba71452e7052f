"""Sharing of slots: every slot is taken, fewest move, and then they rest."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from relay.cluster.slot_sharing import SiteView, SlotView


def view_of(nodes: str, owners: str, copies: str | None = None) -> SiteView:
    """View with a letter for each node, and for each slot's owner; `-` for nobody."""
    warm = frozenset(nodes if copies is None else copies)
    return SiteView(
        frozenset(nodes),
        {
            slot: SlotView(owner=owner.strip("-"), copies=warm - {owner})
            for slot, owner in enumerate(owners)
        },
    )


def settled(view: SiteView) -> tuple[SiteView, int]:
    """Take and give until nothing moves; return what is then, and the number of slots given."""
    given = 0
    for _ in range(200):
        moves = view.takers()
        if not moves:
            gifts = [gift for node in view.nodes if (gift := view.to_give(node))]
            assert len(gifts) <= 1, "one gives at a time"
            moves = dict(gifts)
            given += len(gifts)
        if not moves:
            return view, given
        slots = {
            slot: replace(
                one,
                owner=moves.get(slot, one.owner),
                copies=view.nodes - {moves.get(slot, one.owner)},
            )
            for slot, one in view.slots.items()
        }
        view = SiteView(view.nodes, slots)
    raise AssertionError("slots move for ever")


def counts(view: SiteView) -> list[int]:
    owned = Counter(one.owner for one in view.slots.values())
    return sorted(owned[node] for node in view.nodes)


@pytest.mark.parametrize(
    ("nodes", "owners", "shares", "gifts"),
    [
        ("a", "--------", [8], 0),
        ("ab", "--------", [4, 4], 0),
        ("abc", "--------", [2, 3, 3], 0),
        ("ab", "aaaaaaaa", [4, 4], 4),
        ("abc", "aaaabbbb", [2, 3, 3], 2),
        ("ab", "aabbccab", [4, 4], 0),
        ("abc", "aaa", [1, 1, 1], 2),
        ("abcdef", "aabbccddee", [1, 1, 2, 2, 2, 2], 1),
    ],
)
def test_all_slots_are_taken_and_evened_out_by_the_fewest_moves(
    nodes: str, owners: str, shares: list[int], gifts: int
) -> None:
    view, given = settled(view_of(nodes, owners))
    assert counts(view) == shares
    assert given == gifts


def test_the_slots_of_a_node_that_is_gone_are_shared_among_the_others() -> None:
    view = view_of("bc", "aabbccaa")
    takers = view.takers()
    assert sorted(takers) == [0, 1, 6, 7]
    assert Counter(takers.values()) == {"b": 2, "c": 2}


def test_all_nodes_find_the_same_while_others_take_their_parts() -> None:
    before = view_of("abc", "aabbccaa")
    wanted = view_of("bc", "aabbccaa").takers(before)
    assert Counter(wanted.values()) == {"b": 2, "c": 2}
    for taken in itertools.permutations(wanted, 2):
        slots = dict(before.slots)
        for slot in taken:
            slots[slot] = SlotView(owner=wanted[slot])
        found = SiteView(frozenset("bc"), slots).takers(before)
        assert found == {slot: node for slot, node in wanted.items() if slot not in taken}


def test_a_slot_goes_to_a_node_whose_copy_is_warm() -> None:
    assert view_of("bc", "a", copies="c").takers() == {0: "c"}
    assert view_of("bc", "a", copies="").takers()[0] in "bc"
    assert view_of("ab", "aaaa", copies="").to_give("a") is None
    assert view_of("ab", "aaaa", copies="b").to_give("a") is not None


def test_a_slot_that_was_given_to_a_node_is_for_that_node_while_it_is_there() -> None:
    wished = SlotView(wished="b", copies=frozenset("abc"))
    many = {1: SlotView("b"), 2: SlotView("b")}
    assert SiteView(frozenset("abc"), {0: wished, **many}).takers() == {0: "b"}
    assert SiteView(frozenset("ac"), {0: wished, **many}).takers()[0] in "ac"


def test_a_slot_that_an_operator_placed_is_not_moved_to_balance() -> None:
    view = view_of("ab", "aaa")
    pinned = {slot: replace(one, is_pinned=slot > 0) for slot, one in view.slots.items()}
    assert SiteView(view.nodes, pinned).to_give("a") == (0, "b")
    pinned[0] = replace(pinned[0], is_pinned=True)
    assert SiteView(view.nodes, pinned).to_give("a") is None


def test_nothing_is_given_while_a_slot_is_free_or_nobody_is_there() -> None:
    assert view_of("ab", "aaaa-").to_give("a") is None
    assert view_of("", "aa").takers() == {}
    assert view_of("b", "aa").to_give("a") is None


def test_a_node_that_leaves_gives_its_slots_to_the_others() -> None:
    view = view_of("abc", "aaabc").without("a")
    assert Counter(view.takers().values()) in (Counter("bbc"), Counter("bcc"))


def test_as_many_nodes_keep_a_copy_as_should_and_more_only_where_a_slot_is_to_move() -> None:
    even = view_of("abcd", "aabbccdd")
    for copies in (1, 2, 3):
        kept = [even.keepers(slot, copies) for slot in range(8)]
        assert all(len(one) == copies for one in kept)
        assert all(one.owner not in kept[slot] for slot, one in even.slots.items())
    assert len({even.keepers(slot, 1) for slot in range(8)}) > 2, "not all at one node"
    uneven = view_of("abcd", "aaabbbcc", copies="")
    more = [slot for slot in range(8) if len(uneven.keepers(slot, 1)) == 2]
    assert len(more) <= 1
    assert any("d" in uneven.keepers(slot, 1) for slot in range(6))


def test_nodes_that_cannot_run_a_slot_keep_no_copy_and_are_given_nothing() -> None:
    view = replace(view_of("abcd", "aaaabbbb", copies=""), unfit=frozenset("cd"))
    assert {node for slot in range(8) for node in view.keepers(slot, 2)} == {"a", "b"}
    free = replace(view_of("abc", "--------", copies=""), unfit=frozenset("a"))
    assert set(free.takers().values()) == {"b", "c"}
    nobody = replace(free, unfit=frozenset("abc"))
    assert set(nobody.takers().values()) == {"a", "b", "c"}


def test_a_node_that_an_operator_wants_a_slot_at_keeps_a_copy() -> None:
    even = view_of("abcd", "aabbccdd")
    other = next(node for node in "bcd" if node not in even.keepers(0, 1))
    slots = {**even.slots, 0: replace(even.slots[0], wanted=other)}
    assert other in replace(even, slots=slots).keepers(0, 1)


def loaded(view: SiteView, *rates: int | None) -> SiteView:
    """Return a view whose slots handle so many messages a second."""
    slots = {
        slot: replace(one, messages_s=rates[slot] if slot < len(rates) else None)
        for slot, one in view.slots.items()
    }
    return replace(view, slots=slots)


def test_the_move_that_gains_most_is_made_and_none_that_gains_little() -> None:
    uneven = loaded(view_of("ab", "aaabbb"), 4000, 2500, 200)
    assert uneven.to_give("a") == (1, "b")
    assert not uneven.evens_numbers(1, "b")
    assert uneven.to_give("b") is None
    assert loaded(uneven, 900, 200, 200).to_give("a") is None
    # A slot that is all of a node's load goes nowhere.
    assert loaded(view_of("ab", "abbbb"), 9000).to_give("a") is None
    many = loaded(view_of("ab", "aabb"), 40_000, 3000, 40_000, 900)
    assert many.to_give("a") is None, "they differ by less than a tenth"


@pytest.mark.parametrize("rate", [0, 1000, 7000])
def test_many_slots_even_out_however_little_each_is_of_all(rate: int) -> None:
    view = replace(view_of("abc", "a" * 32 + "b" * 32))
    few, most = counts(settled(loaded(view, *[rate] * 64))[0])[::2]
    assert most - few <= 0.1 * most


@pytest.mark.parametrize("rate", [9000, 20_000, 100_000])
def test_a_slot_with_more_than_all_others_together_ends_alone(rate: int) -> None:
    view = settled(loaded(view_of("ab", "aaaabbbb"), rate))[0]
    assert counts(view) == [1, 7]
    assert sum(one.owner == view.slots[0].owner for one in view.slots.values()) == 1


@pytest.mark.parametrize("seed", range(50))
def test_whatever_slots_handle_few_moves_bring_the_nodes_near_to_each_other(seed: int) -> None:
    chance = random.Random(seed)
    nodes = "abcd"[: chance.randint(2, 4)]
    view = view_of(nodes, "".join(chance.choice(nodes) for _ in range(chance.randint(2, 40))))
    view = loaded(view, *(int(chance.paretovariate(0.7) * 300) for _ in view.slots))
    settled_view, given = settled(view)
    assert given <= len(view.slots)
    loads = Counter(dict.fromkeys(nodes, 0))
    for one in settled_view.slots.values():
        loads[one.owner] += one.load
    most = max(loads, key=lambda node: loads[node])
    least = min(loads.values())
    for one in settled_view.slots.values():
        if one.owner == most:
            assert least + one.load > 0.9 * loads[most] - 500


def test_a_load_is_known_for_a_while_without_its_entry() -> None:
    now = loaded(view_of("ab", "aba"), None, None, 70).with_rates({0: 9000, 2: 50})
    assert [one.messages_s for one in now.slots.values()] == [9000, None, 70]


def test_a_node_that_could_run_no_slot_is_given_none_though_it_has_a_copy() -> None:
    view = replace(view_of("abc", "aaaa"), unfit=frozenset("b"))
    assert view.to_give("a") is not None
    assert view.to_give("a")[1] == "c"  # type: ignore[index]
    gone = replace(view_of("bc", "aaaa"), unfit=frozenset("b"))
    assert set(gone.takers().values()) == {"c"}
