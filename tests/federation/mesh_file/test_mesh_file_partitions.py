"""Partitions in a mesh file: what they come to, and what is refused."""

from __future__ import annotations

import json

import pytest

from federation.mesh_diff import mesh_diff
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.marked import the_error
from tests.federation.meshes import TRIANGLE, mesh_of, problems_of

ORDERS = '{name: orders, keys: ["order.#"]}'


def with_exchange(exchange: str, lanes: str = "") -> str:
    return lanes + TRIANGLE.replace(ORDERS, exchange)


def test_partitions_come_to_what_the_file_says_and_are_part_of_the_revision() -> None:
    plain, cut = mesh_of(TRIANGLE), mesh_of(with_exchange("{name: orders, partitions: 4}"))
    assert plain.exchanges["orders"].partitions == 1
    assert cut.exchanges["orders"].partitions == 4
    same = mesh_of(with_exchange("{name: orders}"))
    assert same.revision == mesh_of(with_exchange("{name: orders, partitions: 1}")).revision
    assert same.revision != cut.revision
    assert mesh_from_json(json.loads(json.dumps(mesh_as_json(cut)))) == cut
    assert any("partitions 1 -> 4" in line for line in mesh_diff(same, cut))


def test_a_partition_may_be_in_a_lane_of_a_known_name() -> None:
    lanes = "lanes: [urgent, normal, bulk]\nmax_rate: 1Mbit/s\n"
    text = with_exchange("{name: orders, partitions: 2, lane: bulk}", lanes)
    assert problems_of(text) == []


@pytest.mark.parametrize(
    ("text", "wrong", "mend"),
    [
        (
            with_exchange("{name: orders, type: fanout, partitions: ^2}"),
            "told apart by none",
            "type: topic or direct",
        ),
        (
            with_exchange("{name: orders, type: headers, partitions: ^2}"),
            "told apart by none",
            "type: topic or direct",
        ),
        (
            with_exchange("{name: orders, partitions: ^17}"),
            "must be at most 16",
            "",
        ),
        (with_exchange("{name: orders, partitions: ^0}"), "must be at least 1", ""),
        (
            with_exchange(
                "{name: orders, partitions: ^2, lane: slow}",
                "lanes: [normal, slow]\nmax_rate: 1Mbit/s\n",
            ),
            "lane `slow`, whose batches have no room",
            "normal, urgent or bulk",
        ),
        (
            with_exchange("{name: orders, partitions: ^2}\n  - {name: orders.p1}"),
            "has the name of exchange `orders.p1`",
            "name one of the exchanges otherwise",
        ),
        (
            with_exchange("{name: orders, partitions: 2}").replace(
                "paris: {}", "paris: {slots: 2, place: {orders: ^1}}"
            ),
            "spread over the slots by themselves",
            "take it out of `place`",
        ),
    ],
)
def test_what_does_not_go_with_partitions_is_refused(text: str, wrong: str, mend: str) -> None:
    told = the_error(text)
    assert wrong in told
    assert mend in told
