"""Request for a measurement, as its options give it."""

from __future__ import annotations

import pytest

from isthmus.bench.options import BenchOptions
from isthmus.bench.request import BadBench, request_of
from tests.federation.meshes import TRIANGLE, mesh_of

MESH = mesh_of(TRIANGLE)
TWO = mesh_of(TRIANGLE.replace("exchanges:\n", "exchanges:\n  - {name: prices}\n"))


def test_with_no_option_it_is_the_only_exchange_at_every_site_as_fast_as_it_goes() -> None:
    request = request_of(MESH, BenchOptions())
    assert (request.exchange.name, request.key) == ("orders", "order.bench")
    assert request.origins == ("paris", "tokyo", "sydney")
    assert set(request.destinations) == {"paris", "tokyo", "sydney"}
    assert (request.per_second, request.size, request.duration_s, request.wait_s) == (
        None,
        1024,
        30,
        60,
    )


@pytest.mark.parametrize(("said", "rate"), [("500", 500), ("1.5k", 1500), ("30/m", 0.5)])
def test_a_rate_is_a_second_unless_it_says_otherwise(said: str, rate: float) -> None:
    assert request_of(MESH, BenchOptions(rate=said)).per_second == rate


@pytest.mark.parametrize(("size", "ahead"), [("100B", 10_000), ("64KiB", 1024), ("15MiB", 16)])
def test_the_bigger_messages_are_the_fewer_are_under_way(size: str, ahead: int) -> None:
    assert request_of(MESH, BenchOptions(size=size)).ahead == ahead


def test_how_many_are_under_way_may_be_said() -> None:
    assert request_of(MESH, BenchOptions(size="1MiB", ahead=5000)).ahead == 5000


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (BenchOptions(exchange="order"), "did you mean 'orders'?"),
        (
            BenchOptions(origins=["rome"]),
            "--from: there is no site 'rome': the mesh has paris, tokyo",
        ),
        (
            BenchOptions(destinations=["tokio"]),
            "--to: there is no site 'tokio': did you mean 'tokyo'?",
        ),
        (BenchOptions(key="order.#"), "is a pattern: .* such as 'order.bench'"),
        (BenchOptions(rate="fast"), "--rate: 'fast/s' is no rate"),
        (BenchOptions(rate="0"), "--rate 0 publishes nothing"),
        (BenchOptions(size="10B"), "between 32B"),
        (BenchOptions(size="20MiB"), "and 15MiB"),
        (BenchOptions(size="10"), "--size: `10` is no size"),
        (BenchOptions(duration="10"), "--duration: `10` is no duration"),
        (BenchOptions(duration="0s"), "--duration 0s measures nothing"),
        (BenchOptions(wait="soon"), "--wait: `soon` is no duration"),
    ],
)
def test_an_invalid_request_names_the_choices(said: BenchOptions, why: str) -> None:
    with pytest.raises(BadBench, match=why):
        request_of(MESH, said)


def test_of_several_exchanges_one_has_to_be_named() -> None:
    with pytest.raises(BadBench, match="the mesh has prices, orders"):
        request_of(TWO, BenchOptions())
