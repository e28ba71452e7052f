"""Places that the names of brokers stand for."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from federation.brokers.endpoint import Endpoint, resolved

KNOWN = {"two.example": ("10.0.0.1", "10.0.0.2"), "one.example": ("10.0.0.3",)}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(_: object, host: str, port: int, **__: object) -> list[Any]:
        if host not in KNOWN:
            raise socket.gaierror(f"{host} is not known")
        return [(socket.AF_INET, 1, 6, "", (ip, port)) for ip in KNOWN[host]]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)


async def test_a_name_with_several_addresses_counts_as_several_places() -> None:
    assert await resolved([Endpoint("two.example", 1), Endpoint("10.9.9.9", 2)]) == (
        Endpoint("two.example", 1, "10.0.0.1"),
        Endpoint("two.example", 1, "10.0.0.2"),
        Endpoint("10.9.9.9", 2),
    )


async def test_a_name_with_one_address_stays_a_name() -> None:
    places = (Endpoint("one.example", 1), Endpoint("localhost", 2), Endpoint("::1", 3))
    assert await resolved(places) == places


async def test_a_name_that_is_not_known_is_left_for_the_connection_to_tell_of() -> None:
    assert await resolved([Endpoint("nowhere.example", 1)]) == (Endpoint("nowhere.example", 1),)


def test_a_place_is_shown_with_the_address_that_is_dialled() -> None:
    assert str(Endpoint("::1", 5672)) == "[::1]:5672"
    assert str(Endpoint("h", 5672, "10.0.0.1")) == "h:5672 (10.0.0.1)"
    assert Endpoint("h", 5672, "10.0.0.1").dialled == "10.0.0.1"
