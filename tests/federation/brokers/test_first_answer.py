"""Connecting to whichever of several addresses answers."""

from __future__ import annotations

import asyncio

import pytest

from federation.brokers.first_answer import NoneAnswered, first_answer
from tests.virtual_time import in_virtual_time

HEAD_START_S = 3.0


class Addresses:
    """Behaviour of each place: refuse at once, hang, or answer after some seconds."""

    def __init__(self, **answers_after_s: float | Exception | None) -> None:
        self.answers = answers_after_s
        self.tried: list[str] = []
        self.dropped: list[str] = []
        self.cancelled: list[str] = []

    async def connect(self, address: str) -> str:
        self.tried.append(address)
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        try:
            await asyncio.sleep(answer if answer is not None else 10_000)
        except asyncio.CancelledError:
            self.cancelled.append(address)
            raise
        return f"connection to {address}"

    async def first(self, order: str) -> tuple[str, str]:
        return await first_answer(
            order, self.connect, self.dropped.append, (OSError,), HEAD_START_S
        )


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_the_first_address_is_the_only_one_tried_where_it_answers() -> None:
    addresses = Addresses(a=1.0, b=0.0)
    assert await addresses.first("ab") == ("a", "connection to a")
    assert addresses.tried == ["a"]


@in_virtual_time
async def test_an_address_that_refuses_costs_no_time() -> None:
    addresses, began = Addresses(a=OSError("refused"), b=0.0), now()
    assert await addresses.first("ab") == ("b", "connection to b")
    assert now() == pytest.approx(began, abs=0.01)


@in_virtual_time
async def test_an_address_that_hangs_costs_its_head_start_and_is_given_up() -> None:
    addresses, began = Addresses(a=None, b=0.5), now()
    assert (await addresses.first("ab"))[0] == "b"
    assert now() - began == pytest.approx(HEAD_START_S + 0.5)
    assert addresses.cancelled == ["a"]


@in_virtual_time
async def test_a_slow_first_address_still_wins_if_it_answers_before_the_second() -> None:
    addresses = Addresses(a=4.0, b=2.0)
    assert (await addresses.first("ab"))[0] == "a"
    assert addresses.cancelled == ["b"]


@in_virtual_time
async def test_a_connection_that_comes_second_is_dropped() -> None:
    addresses = Addresses(a=HEAD_START_S + 1, b=1.0)
    place, _ = await addresses.first("ab")
    assert len(addresses.dropped) + len(addresses.cancelled) == 1
    assert place not in [*addresses.cancelled, *addresses.dropped]


@in_virtual_time
async def test_when_none_answers_each_address_has_its_own_error() -> None:
    addresses = Addresses(a=OSError("no route"), b=OSError("refused"))
    with pytest.raises(NoneAnswered, match="no route; refused") as raised:
        await addresses.first("ab")
    assert {key: str(error) for key, error in raised.value.errors.items()} == {
        "a": "no route",
        "b": "refused",
    }


@in_virtual_time
async def test_an_error_of_another_kind_is_raised_at_once() -> None:
    addresses = Addresses(a=None, b=ValueError("a mistake of ours"), c=0.0)
    with pytest.raises(ValueError, match="a mistake of ours"):
        await addresses.first("abc")
    assert addresses.tried == ["a", "b"]
    assert addresses.cancelled == ["a"]


@in_virtual_time
async def test_whoever_gives_up_leaves_no_attempt_behind() -> None:
    addresses = Addresses(a=None, b=None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HEAD_START_S + 1):
            await addresses.first("ab")
    assert sorted(addresses.cancelled) == ["a", "b"]
