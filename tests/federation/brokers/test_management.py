"""What is asked of a broker's management API, against a server that answers as we tell it to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from federation.brokers.addresses import ManagementAddress
from federation.brokers.management import ManagementApi, ManagementAway, ManagementRefused


def api_at(url: str, *others: str) -> ManagementApi:
    return ManagementApi(ManagementAddress(url, "/", "guest", "guest", other_urls=others))


class Broker:
    """Answers with these statuses, one a request; the last one for ever."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return web.json_response({"reason": "because"} if status >= 400 else [], status=status)

    async def ask(self) -> object:
        async with self.serving() as url, api_at(url) as api:
            return await api.get("queues", "/")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/{path:.*}", self.answer)
        async with TestServer(application, host="127.0.0.1") as server:
            yield str(server.make_url("")).rstrip("/")


async def test_a_server_error_is_asked_again() -> None:
    broker = Broker(500, 503, 200)
    assert await broker.ask() == []
    assert broker.asked == 3


async def test_a_server_error_that_stays_is_told() -> None:
    broker = Broker(500)
    with pytest.raises(ManagementRefused, match="500 because"):
        await broker.ask()
    assert broker.asked == 5


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_is_told_at_once(status: int) -> None:
    broker = Broker(status)
    with pytest.raises(ManagementRefused, match=f"{status} because"):
        await broker.ask()
    assert broker.asked == 1


async def test_what_is_not_there_is_none() -> None:
    assert await Broker(404).ask() is None


DEAD = "http://127.0.0.1:1"


async def test_of_a_cluster_the_node_that_answers_is_asked_and_is_asked_again() -> None:
    first, second = Broker(200), Broker(200)
    async with (
        first.serving() as one,
        second.serving() as other,
        api_at(DEAD, one, other) as api,
    ):
        assert await api.get("queues", "/") == []
        assert await api.get("queues", "/") == []
        await api.date()
    assert (first.asked, second.asked) == (3, 0)


async def test_a_refusal_of_one_node_is_the_clusters() -> None:
    first, second = Broker(401), Broker(200)
    async with first.serving() as one, second.serving() as other, api_at(one, other) as api:
        with pytest.raises(ManagementRefused, match="401"):
            await api.get("queues", "/")
    assert second.asked == 0


async def test_when_no_node_answers_each_one_is_told() -> None:
    async with api_at(DEAD, "http://127.0.0.1:2") as api:
        with pytest.raises(ManagementAway, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            await api.get("queues", "/")
