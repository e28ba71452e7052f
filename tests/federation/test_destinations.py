"""Destination sets by key: who takes a message."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation import destinations
from federation.destinations import Addressing, DestinationIndex, TopicIndex, addressing_of
from federation.mesh import Exchange, ForwardingRule, Mesh, Site

SHOPS = ("s1", "s2", "s3")


def mesh_of(exchange: Exchange, wants: dict[str, tuple[str, ...] | None]) -> Mesh:
    """Sites with what they want of the exchange; None: everything."""
    sites = {
        name: Site(name, name, wants={} if wanted is None else {exchange.name: wanted})
        for name, wanted in wants.items()
    }
    return Mesh("acme", "r1", 3600.0, ForwardingRule.RING, sites, {exchange.name: exchange}, ())


def shops(exchange: Exchange | None = None) -> Mesh:
    """A head office that takes everything, a hub, and shops that each take their own and news."""
    wants: dict[str, tuple[str, ...] | None] = {"hub": None, "office": None}
    wants |= {shop: (f"store.{shop}.#", "news.*") for shop in SHOPS}
    return mesh_of(exchange or Exchange("orders"), wants)


def index_of(mesh: Mesh, site: str) -> DestinationIndex:
    addressing = addressing_of(mesh, mesh.exchanges["orders"], site)
    assert addressing is not None
    return DestinationIndex(addressing)


@pytest.mark.parametrize(
    ("key", "sites"),
    [
        ("store.s1.price", ("office", "s1")),
        ("store.s1", ("office", "s1")),
        ("store.s9.price", ("office",)),
        ("news.today", ()),
        ("news", ("office",)),
        ("", ("office",)),
    ],
)
def test_a_message_is_for_those_that_want_its_key(key: str, sites: tuple[str, ...]) -> None:
    assert index_of(shops(), "hub").of(key.encode()) == sites


def test_the_origin_is_never_among_them() -> None:
    index = index_of(shops(), "s1")
    assert index.of(b"store.s1.stock") == ("hub", "office")
    assert index.of(b"store.s2.stock") == ("hub", "office", "s2")


def test_a_key_that_all_others_take_is_addressed_as_if_nobody_narrowed() -> None:
    assert index_of(shops(), "s1").of(b"news.today") == ()
    some = Exchange("orders", destinations=("s1", "s2", "hub"))
    index = index_of(shops(some), "hub")
    assert index.of(b"news.today") == ("hub", "s1", "s2")
    assert index.of(b"store.s1.x") == ("s1",)


def test_what_nobody_takes_is_addressed_to_its_origin() -> None:
    some = Exchange("orders", destinations=SHOPS)
    index = index_of(shops(some), "hub")
    assert index.of(b"store.s9.x") == index.nobody == ("hub",)


def test_an_exchange_that_nobody_narrows_is_not_addressed_by_key() -> None:
    exchange = Exchange("orders")
    assert addressing_of(mesh_of(exchange, {"a": None, "b": None}), exchange, "a") is None
    only_the_origin = mesh_of(exchange, {"a": ("x",), "b": None})
    assert addressing_of(only_the_origin, exchange, "a") is None
    assert addressing_of(only_the_origin, exchange, "b") is not None


def test_narrowing_another_exchange_changes_nothing() -> None:
    mesh = shops()
    bills = Exchange("bills")
    assert addressing_of(mesh, bills, "hub") is None


def test_what_sites_outside_to_or_banned_want_is_not_asked() -> None:
    some = Exchange("orders", destinations=("s1", "office"), never_via=("s2",))
    assert index_of(shops(some), "hub").of(b"store.s2.x") == ("office",)
    banned = Exchange("orders", never_via=("s2",))
    assert index_of(shops(banned), "hub").of(b"store.s2.x") == ("office",)


def test_what_is_kept_from_some_sites_names_all_others_so_that_it_is_never_for_those() -> None:
    banned = Exchange("orders", never_via=("b",))
    mesh = mesh_of(banned, {"a": None, "b": None, "c": None, "d": ("x",)})
    assert mesh.destination_set(banned) == ("a", "c", "d")
    index = index_of(mesh, "a")
    assert index.of(b"x") == ("a", "c", "d")
    assert index.of(b"y") == ("c",)
    assert mesh.destination_set(Exchange("orders")) == ()


def test_a_direct_exchange_s_wants_are_whole_keys() -> None:
    exchange = Exchange("orders", type="direct")
    index = index_of(mesh_of(exchange, {"a": None, "b": ("red", "#"), "c": ("red",)}), "a")
    assert index.of(b"red") == ()
    assert index.of(b"#") == ("b",)
    assert index.of(b"red.light") == index.nobody


def test_a_site_that_wants_nothing_gets_nothing() -> None:
    exchange = Exchange("orders")
    assert index_of(mesh_of(exchange, {"a": None, "b": (), "c": None}), "a").of(b"x") == ("c",)


def test_equal_sets_are_one_tuple_so_that_comparing_them_costs_nothing() -> None:
    index = index_of(shops(), "hub")
    assert index.of(b"store.s1.a") is index.of(b"store.s1.b")


def test_forgetting_keys_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destinations, "KEYS_REMEMBERED", 2)
    monkeypatch.setattr(destinations, "SETS_REMEMBERED", 2)
    index = index_of(shops(), "hub")
    for _ in range(3):
        for shop in SHOPS:
            assert index.of(f"store.{shop}.x".encode()) == ("office", shop)


def naive_match(pattern: list[str], key: list[str]) -> bool:
    """As the AMQP specification says it."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(naive_match(pattern[1:], key[n:]) for n in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and naive_match(pattern[1:], key[1:])


KEYS = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), min_size=1, max_size=5)


@given(st.lists(PATTERNS, max_size=8), KEYS)
def test_topic_patterns_match_as_the_broker_matches_them(
    patterns: list[list[str]], key: list[str]
) -> None:
    index = TopicIndex()
    for number, pattern in enumerate(patterns):
        index.add(".".join(pattern).encode(), str(number))
    words = [] if key == [""] else key
    wanted = {
        str(number)
        for number, pattern in enumerate(patterns)
        if naive_match([] if pattern == [""] else pattern, words)
    }
    assert index.sites_for(".".join(key).encode()) == wanted


def test_five_hundred_sites_are_looked_up_by_the_words_of_the_key_alone() -> None:
    narrowed = tuple((f"c{n}", (f"store.s{n}.#",)) for n in range(500))
    index = DestinationIndex(Addressing("hub", (), (), narrowed))
    assert all(index.of(f"store.s{n}.x".encode()) == (f"c{n}",) for n in range(500))


def test_a_key_and_patterns_made_to_explode_do_not() -> None:
    index = TopicIndex()
    index.add(b".".join([b"#", b"a"] * 30), "site")
    for length in itertools.chain(range(30), (5_000,)):
        assert not index.sites_for(b".".join([b"a"] * length + [b"b"]))
