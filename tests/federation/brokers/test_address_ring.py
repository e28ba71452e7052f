"""Order in which the addresses of a cluster are tried."""

from __future__ import annotations

from federation.brokers.address_ring import SHORT_S, AddressRing, AddressRings


def test_the_order_goes_round_from_where_the_ring_begins() -> None:
    assert AddressRing[str](1).order("abc") == ("b", "c", "a")
    assert AddressRing[str](5).order("abc") == ("c", "a", "b")


def test_the_address_that_worked_last_is_tried_first() -> None:
    ring = AddressRing[str]()
    ring.worked("c")
    assert ring.order("abc") == ("c", "a", "b")
    ring.worked("b")
    assert ring.order("abc") == ("b", "c", "a")


def test_an_address_that_is_not_listed_any_more_is_not_tried() -> None:
    ring = AddressRing[str]()
    ring.worked("x")
    assert ring.order("ab") == ("a", "b")
    assert ring.order("") == ()


def test_an_address_that_is_there_twice_is_tried_once() -> None:
    assert AddressRing[str]().order("aba") == ("a", "b")


def test_a_node_that_soon_ended_its_connection_is_tried_last() -> None:
    ring = AddressRing[str]()
    ring.worked("b", lambda: SHORT_S - 1)
    assert ring.order("abc") == ("c", "a", "b")
    ring.worked("c", lambda: SHORT_S)
    assert ring.order("abc") == ("c", "a", "b")


def test_a_node_that_failed_a_declaration_after_thirty_seconds_is_tried_last() -> None:
    ring = AddressRing[str]()
    ring.worked("b", lambda: 30.0)
    assert ring.order("abc") == ("c", "a", "b")


def test_an_address_is_in_use_as_long_as_its_connection_lasts() -> None:
    ring = AddressRing[str]()
    lasted_s: float | None = None
    ring.order("ab")
    assert ring.in_use is None
    ring.worked("a", lambda: lasted_s)
    assert ring.in_use == ring.in_use_of_several == "a"
    lasted_s = 60.0
    assert ring.in_use is None


def test_a_single_address_is_no_choice_to_tell_of() -> None:
    rings = AddressRings[str]()
    for purpose, addresses in (("log", "a"), ("egress", "ab")):
        rings.of(purpose).order(addresses)
        rings.of(purpose).worked("a", lambda: None)
    assert rings.in_use() == {"egress": "a"}


def test_purposes_of_one_site_begin_at_different_addresses() -> None:
    rings = AddressRings[str]("paris")
    firsts = [rings.of(purpose).order("abc")[0] for purpose in ("log", "egress", "exchange")]
    assert sorted(firsts) == ["a", "b", "c"]
    assert rings.of("log") is rings.of("log")


def test_sites_begin_at_different_addresses() -> None:
    firsts = {AddressRings[str](f"shop{n}").of("log").order("abc")[0] for n in range(30)}
    assert firsts == {"a", "b", "c"}
