"""What the options of a measurement come to."""

from __future__ import annotations

import pytest

from isthmus.bench.asked import Said, asked_of
from isthmus.bench.pairs import BadBench
from tests.federation.meshes import TRIANGLE, mesh_of

MESH = mesh_of(TRIANGLE)
TWO = mesh_of(TRIANGLE.replace("exchanges:\n", "exchanges:\n  - {name: prices}\n"))


def test_with_no_option_it_is_the_only_exchange_at_every_site_as_fast_as_it_goes() -> None:
    asked = asked_of(MESH, Said())
    assert (asked.exchange.name, asked.key) == ("orders", "order.bench")
    assert asked.origins == ("paris", "tokyo", "sydney")
    assert set(asked.destinations) == {"paris", "tokyo", "sydney"}
    assert (asked.per_second, asked.size, asked.duration_s, asked.wait_s) == (None, 1024, 30, 60)


@pytest.mark.parametrize(("said", "rate"), [("500", 500), ("1.5k", 1500), ("30/m", 0.5)])
def test_a_rate_is_a_second_unless_it_says_otherwise(said: str, rate: float) -> None:
    assert asked_of(MESH, Said(rate=said)).per_second == rate


@pytest.mark.parametrize(("size", "ahead"), [("100B", 10_000), ("64KiB", 1024), ("15MiB", 16)])
def test_the_bigger_messages_are_the_fewer_are_under_way(size: str, ahead: int) -> None:
    assert asked_of(MESH, Said(size=size)).ahead == ahead


def test_how_many_are_under_way_may_be_said() -> None:
    assert asked_of(MESH, Said(size="1MiB", ahead=5000)).ahead == 5000


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said(exchange="order"), "did you mean 'orders'?"),
        (Said(origins=["rome"]), "--from: there is no site 'rome': the mesh has paris, tokyo"),
        (Said(destinations=["tokio"]), "--to: there is no site 'tokio': did you mean 'tokyo'?"),
        (Said(key="order.#"), "is a pattern: .* such as 'order.bench'"),
        (Said(rate="fast"), "--rate: 'fast/s' is no rate"),
        (Said(rate="0"), "--rate 0 publishes nothing"),
        (Said(size="10B"), "between 32B"),
        (Said(size="20MiB"), "and 15MiB"),
        (Said(size="10"), "--size: `10` is no size"),
        (Said(duration="10"), "--duration: `10` is no duration"),
        (Said(duration="0s"), "--duration 0s measures nothing"),
        (Said(wait="soon"), "--wait: `soon` is no duration"),
    ],
)
def test_what_cannot_be_measured_is_said_with_what_can(said: Said, why: str) -> None:
    with pytest.raises(BadBench, match=why):
        asked_of(MESH, said)


def test_of_several_exchanges_one_has_to_be_named() -> None:
    with pytest.raises(BadBench, match="the mesh has prices, orders"):
        asked_of(TWO, Said())
