"""Places where the leader of a stream is looked for."""

from __future__ import annotations

from federation.brokers.endpoint import Endpoint
from relay.log.rabbit.leader_search import MEETINGS, LeaderSearch

A, B, C = (Endpoint(name, 5552) for name in "abc")
HIDDEN = ("rabbit-1.internal", 5552)


def went(search: LeaderSearch, leader: tuple[str, int]) -> list[Endpoint]:
    """All places in the order in which they are tried when none of them is the leader's."""
    tried = []
    while (place := search.next(leader)) is not None:
        tried.append(place)
        search.met(place)
    return tried


def test_the_configured_address_that_the_leader_advertises_is_next() -> None:
    search = LeaderSearch((A, B, C))
    search.met(A)
    assert search.next(("c", 5552)) == C


def test_an_address_that_nobody_configured_is_dialled_as_it_is_advertised() -> None:
    search = LeaderSearch((A,))
    search.met(A)
    assert search.next(HIDDEN) == Endpoint(*HIDDEN)


def test_where_the_advertised_address_does_not_serve_all_others_are_tried() -> None:
    search = LeaderSearch((A, B, C))
    search.met(A)
    assert went(search, HIDDEN)[:3] == [Endpoint(*HIDDEN), B, C]


def test_a_single_address_may_lead_to_another_node_each_time_but_not_for_ever() -> None:
    search = LeaderSearch((A,))
    search.met(A)
    assert went(search, HIDDEN) == [Endpoint(*HIDDEN)] + [A] * (MEETINGS - 1)


def test_a_leader_that_has_moved_meanwhile_is_looked_for_where_it_is_now() -> None:
    search = LeaderSearch((A, B, C))
    search.met(A)
    assert search.next(("b", 5552)) == B
    search.met(B)
    assert search.next(("c", 5552)) == C


def test_an_address_where_nobody_answers_is_tried_once() -> None:
    search = LeaderSearch((A, B))
    search.met(A)
    assert search.next(("b", 5552)) == B
    search.failed(B)
    assert went(search, ("b", 5552)) == [A] * (MEETINGS // 2 - 1)


def test_an_address_pinned_to_one_of_a_names_is_known_by_its_name() -> None:
    one, other = Endpoint("a", 5552, "10.0.0.1"), Endpoint("a", 5552, "10.0.0.2")
    search = LeaderSearch((one, other))
    search.met(one)
    assert search.next(("a", 5552)) == other
