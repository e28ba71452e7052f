"""What `publish` and `consume` say of messages that go nowhere, or do not come."""

from __future__ import annotations

import pytest

from isthmus.departures import delivered_to, why_it_stays, why_nothing_comes
from tests.federation.meshes import mesh_of

MESH = mesh_of(
    """\
    mesh: acme
    topology: complete
    exchanges:
      - {name: orders, keys: ["order.#"]}
      - {name: prices, from: [paris], to: [tokyo, lima], mode: split}
      - {name: tasks, type: direct, keys: [mail, print]}
      - {name: news, type: fanout, never_via: [lima]}
      - {name: sales}
    sites:
      paris: {wants: {sales: ["sales.paris.#"]}}
      tokyo: {wants: {sales: ["sales.tokyo.#"]}}
      lima: {wants: {sales: ["sales.lima.#"]}}
    """
)


@pytest.mark.parametrize(
    ("site", "exchange", "key", "said"),
    [
        ("paris", "orders", "order.new", ""),
        ("paris", "orders", "invoice.new", "no key of orders takes 'invoice.new' out"),
        ("paris", "orders", "order.*", ""),
        ("paris", "prices", "any", ""),
        ("tokyo", "prices", "any", "tokyo is not in its `from`"),
        ("paris", "tasks", "mail", ""),
        ("paris", "tasks", "mail.now", "no key of tasks"),
        ("paris", "news", "", ""),
        ("lima", "news", "", "lima is in its `never_via`"),
        ("paris", "sales", "sales.tokyo.new", ""),
        ("paris", "sales", "sales.paris.new", "no other site wants 'sales.paris.new'"),
        ("paris", "order", "order.new", "did you mean 'orders'?"),
    ],
)
def test_messages_that_stay_at_their_site_are_explained(
    site: str, exchange: str, key: str, said: str
) -> None:
    why = why_it_stays(MESH, site, exchange, key)
    assert said in why
    assert bool(said) == bool(why)


@pytest.mark.parametrize(
    ("site", "exchange", "said"),
    [
        ("tokyo", "prices", ""),
        ("tokyo", "prices.in", ""),
        ("paris", "prices", "paris is not in its `to`"),
        ("lima", "news", "lima is in its `never_via`"),
        ("lima", "sale", "did you mean 'sales'?"),
    ],
)
def test_exchanges_that_do_not_come_are_explained(site: str, exchange: str, said: str) -> None:
    why = why_nothing_comes(MESH, site, exchange)
    assert said in why
    assert bool(said) == bool(why)


def test_a_split_exchange_is_known_by_either_name() -> None:
    for name in ("prices", "prices.in"):
        found = delivered_to(MESH, name)
        assert found is not None
        assert found.delivers_to == "prices.in"
    assert delivered_to(MESH, "orders.in") is None
