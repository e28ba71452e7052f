"""The schedule: the same for one seed, every kind in turn, and no place struck twice at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.schedule import (
    AT_ONCE,
    KINDS,
    SHARED_SITE,
    USUAL,
    Fault,
    draw,
    kinds_of,
    logs_site,
)
from tests.chaos.world import GRAPHS, SITES

SEEDS = range(30)
MINUTES_10 = 600.0


def drawn(
    seed: int, within_s: float = MINUTES_10, graph: str = "ring", **how: Sequence[str]
) -> list[Fault]:
    return draw(seed, within_s, SITES, GRAPHS[graph], **how)


def test_one_seed_gives_one_schedule_and_another_gives_another() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_it_is_the_same_on_every_machine() -> None:
    assert [str(fault) for fault in drawn(1)[:4]] == [
        "    4.2 s  #1 reset sydney-lima",
        "    6.7 s  #2 kill-node sydney for 4.7 s",
        "    8.6 s  #3 queue-purged tokyo",
        "   16.4 s  #4 log-cut-short tokyo-sydney (back) for 7.0 s",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_minutes_have_every_kind(seed: int) -> None:
    assert {fault.kind for fault in drawn(seed)} == set(USUAL)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_befalls_several_nodes_befalls_the_site_that_has_them(seed: int) -> None:
    faults = drawn(seed, kinds=kinds_of(nodes=True))
    of_nodes = [fault for fault in faults if KINDS[fault.kind].of_nodes]
    assert {fault.kind for fault in of_nodes} == set(kinds_of(nodes=True)).difference(USUAL)
    assert {fault.where for fault in of_nodes} == {SHARED_SITE}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_begin_and_end_in_time_in_order_and_as_long_as_their_kind_says(seed: int) -> None:
    faults = drawn(seed)
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))
    assert sorted(fault.at_s for fault in faults) == [fault.at_s for fault in faults]
    for fault in faults:
        kind = KINDS[fault.kind]
        assert fault.ends_s <= MINUTES_10 + 0.001
        assert kind.shortest_s - 0.1 <= fault.lasts_s <= kind.longest_s
        assert fault.detail in kind.details


@pytest.mark.parametrize("seed", SEEDS)
def test_no_place_is_struck_before_it_has_recovered_and_few_are_at_once(seed: int) -> None:
    faults = drawn(seed)
    for number, fault in enumerate(faults):
        before = faults[:number]
        for other in before:
            kind = KINDS[other.kind]
            if kind.on == "mesh" or KINDS[fault.kind].on == "mesh" or other.where == fault.where:
                assert fault.at_s >= other.ends_s + kind.rest_s - 0.001, (other, fault)
        assert sum(other.ends_s > fault.at_s + 0.001 for other in before) < AT_ONCE


def test_only_the_kinds_that_are_asked_for_are_drawn() -> None:
    faults = drawn(3, kinds=["cut", "kill-node"])
    assert {fault.kind for fault in faults} == {"cut", "kill-node"}


def test_what_there_is_no_time_for_is_not_drawn() -> None:
    assert drawn(1, 0.5) == []
    assert not any(fault.kind.startswith("hang") for fault in drawn(1, 35.0))


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_log_is_struck_where_another_neighbour_has_what_it_had(graph: str) -> None:
    pairs = GRAPHS[graph]
    struck = [
        fault for seed in SEEDS for fault in drawn(seed, graph=graph) if fault.kind[:3] == "log"
    ]
    assert {fault.where for fault in struck} == {"-".join(pair) for pair in pairs}
    for fault in struck:
        site = logs_site(fault.where, fault.detail)
        assert sum(site in pair for pair in pairs) == 2, fault
