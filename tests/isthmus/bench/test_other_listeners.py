"""Who else listens where a measurement's messages get to."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import load_or_make
from isthmus.bench.options import BenchOptions
from isthmus.bench.other_listeners import (
    OtherBinding,
    OthersListen,
    bindings_besides,
    refuse_if_others_listen,
    touched,
)
from isthmus.bench.queues import queue_name
from isthmus.bench.request import request_of
from tests.federation.meshes import mesh_of

MESH = mesh_of("""\
    mesh: acme
    topology: complete
    exchanges: [{name: orders}, {name: prices, from: [paris], mode: split}]
    sites: {paris: {}, tokyo: {}, lima: {}}
""")
OWN = """\
    mesh: acme
    topology: complete
    exchanges: [{name: orders}]
    sites:
      paris: {broker: "amqp://relay@a.example/", stream: "rabbitmq-stream://a.example", password: x}
      tokyo: {broker: "amqp://relay@b.example/", stream: "rabbitmq-stream://b.example", password: x}
"""
EGRESS = "isthmus.acme.egress.orders"


def bound(name: str, key: str, kind: str = "queue") -> dict[str, str]:
    return {"destination": name, "destination_type": kind, "routing_key": key}


def test_the_mesh_s_own_queues_are_no_other_listeners() -> None:
    assert list(bindings_besides({}, [bound(EGRESS, "#")], [EGRESS])) == []


def test_each_other_one_is_said_with_its_keys() -> None:
    orders = queue_name(b"12345678", MESH.exchanges["orders"])
    bindings = [
        bound("billing", "order.#"),
        bound("billing", "bill.*"),
        bound("audit", "", "exchange"),
        bound(orders, "bench"),
    ]
    declared = {"arguments": {"alternate-exchange": "unrouted"}}
    assert list(bindings_besides(declared, [bound(EGRESS, "#"), *bindings], [EGRESS])) == [
        "queue billing, bound by 'order.#', 'bill.*'",
        "exchange audit, bound by ''",
        f"queue {orders}, bound by 'bench': another bench's; of one that was killed, it goes by "
        "itself in 120 s",
        "exchange unrouted, which gets what no queue takes",
    ]


def test_messages_get_to_sites_that_are_not_listened_at_too() -> None:
    request = request_of(
        MESH, BenchOptions(exchange="orders", origins=["paris"], destinations=["tokyo"])
    )
    assert touched(MESH, request) == {"paris": {"orders"}, "tokyo": {"orders"}, "lima": {"orders"}}


def test_of_a_split_exchange_each_side_has_its_own() -> None:
    request = request_of(MESH, BenchOptions(exchange="prices"))
    ins = {"prices.in"}
    assert touched(MESH, request) == {"paris": {"prices"}, "tokyo": ins, "lima": ins}


async def test_a_broker_that_cannot_be_asked_may_have_anybody(tmp_path: Path) -> None:
    mesh = mesh_of(OWN)
    book = AddressBook(mesh, load_or_make(tmp_path, mesh), {}, {})
    with pytest.raises(OthersListen) as caught:
        await refuse_if_others_listen(book, request_of(mesh, BenchOptions()))
    assert [one.site for one in caught.value.unknown] == ["paris", "tokyo"]
    assert "paris: cannot tell who listens there: the mesh file has no `manage" in str(caught.value)


def test_other_listeners_are_listed_by_site() -> None:
    error = OthersListen([OtherBinding("tokyo", "orders", "queue billing, bound by '#'")], [])
    assert str(error) == "tokyo: orders has queue billing, bound by '#'"
