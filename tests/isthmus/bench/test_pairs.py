"""Between which sites a measurement goes, and under which key."""

from __future__ import annotations

import pytest

from isthmus.bench.request import BadBench, key_of, pairs_of, takers
from tests.federation.meshes import mesh_of

MESH = mesh_of("""\
    mesh: acme
    topology: complete
    exchanges:
      - {name: orders, keys: ["order.#"]}
      - {name: prices, from: [paris], to: [tokyo, lima], mode: split}
      - {name: mails, type: direct, keys: [news, alarm]}
      - {name: fans, type: fanout}
      - {name: stores, keys: ["store.*.price", "store.#"]}
    sites:
      paris: {}
      tokyo: {wants: {stores: ["store.7.#"]}}
      lima: {wants: {stores: ["store.9.*", "store.7.price"], mails: [alarm]}, cluster_id: lim-1}
""")


@pytest.mark.parametrize(
    ("exchange", "key"),
    [
        ("orders", "order.bench"),
        ("prices", "bench"),
        ("mails", "alarm"),
        ("fans", "bench"),
        ("stores", "store.7.price"),
    ],
)
def test_the_key_takes_a_message_to_as_many_sites_as_any(exchange: str, key: str) -> None:
    assert key_of(MESH, MESH.exchanges[exchange]) == key


@pytest.mark.parametrize(
    ("exchange", "origin", "key", "sites"),
    [
        ("orders", "paris", "order.new", ["tokyo", "lima"]),
        ("orders", "paris", "invoice", []),
        ("prices", "paris", "any", ["tokyo", "lima"]),
        ("prices", "tokyo", "any", []),
        ("mails", "tokyo", "news", ["paris"]),
        ("stores", "paris", "store.9.x", ["lima"]),
        ("stores", "tokyo", "store.9.x", ["paris", "lima"]),
        ("stores", "paris", "store.1.x", []),
    ],
)
def test_takers_follow_the_mesh_file(
    exchange: str, origin: str, key: str, sites: list[str]
) -> None:
    assert takers(MESH, MESH.exchanges[exchange], origin, key) == sites


def pairs(exchange: str, key: str, *sides: list[str]) -> dict[str, tuple[str, ...]]:
    return pairs_of(MESH, MESH.exchanges[exchange], key, *sides)


def test_unless_told_every_site_that_may_publishes_and_every_one_that_takes_listens() -> None:
    assert pairs("prices", "x") == {"paris": ("tokyo", "lima")}
    assert pairs("stores", "store.1.x") == {"tokyo": ("paris",), "lima": ("paris",)}


def test_sites_that_were_named_are_all_that_take_part() -> None:
    assert pairs("orders", "order.1", ["lima"], ["paris"]) == {"lima": ("paris",)}
    assert pairs("orders", "order.1", [], ["paris"]) == {"tokyo": ("paris",), "lima": ("paris",)}


@pytest.mark.parametrize(
    ("exchange", "key", "origins", "destinations", "said"),
    [
        ("prices", "x", ["tokyo"], [], "tokyo is not in its `from`"),
        ("prices", "x", [], ["paris"], "nothing of prices comes to paris"),
        ("orders", "invoice", [], [], "goes from any site to another under 'invoice'"),
        ("orders", "order.1", ["paris"], ["paris"], "goes from paris to paris"),
        ("stores", "store.1.x", ["paris"], [], "no other site wants 'store.1.x'"),
    ],
)
def test_a_request_that_measures_nothing_is_refused(
    exchange: str, key: str, origins: list[str], destinations: list[str], said: str
) -> None:
    with pytest.raises(BadBench, match=said):
        pairs(exchange, key, origins, destinations)


def test_of_many_sites_some_have_to_be_chosen() -> None:
    sites = ", ".join(f"s{number}: {{}}" for number in range(33))
    mesh = mesh_of(
        f"mesh: big\ntopology: {{hub: s0}}\nexchanges: [{{name: orders}}]\nsites: {{{sites}}}\n"
    )
    with pytest.raises(BadBench, match="1,056 pairs of sites are too many"):
        pairs_of(mesh, mesh.exchanges["orders"], "x")
    assert len(pairs_of(mesh, mesh.exchanges["orders"], "x", ["s0"])["s0"]) == 32
