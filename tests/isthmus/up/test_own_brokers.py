"""`isthmus up` at brokers of one's own before anybody has applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import load_or_make
from federation.names import Names
from isthmus.brokers.config import BrokerUser
from isthmus.brokers.ports import free_ports
from isthmus.options import DEFAULT_STATE
from isthmus.up import own_brokers
from isthmus.up.own_brokers import OwnBrokers
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost
from tests.waiting import until
from wan_proxy import WanProxy


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_brokers, "AGAIN_AFTER_S", (0.1, 0.5))


def brokers_of(
    vhost: Vhost, port: int, state: Path, say: Callable[[str], None], more: str = ""
) -> OwnBrokers:
    mesh = mesh_of(
        f"""
        mesh: {vhost.name}
        topology: complete
        exchanges: [{{name: orders}}]
        sites:
          paris:
            broker: amqp://{vhost.user}@{vhost.host}:{port}/{vhost.name}
            password: env:PW
            {more}
          tokyo: {{link_password: "env:TOKYO"}}
        """
    )
    environ = {"PW": vhost.password, "TOKYO": "t"}
    book = AddressBook(mesh, load_or_make(state, mesh), {}, environ)
    return OwnBrokers(Path("mesh.yaml"), book, state, say)


async def has_log(vhost: Vhost) -> bool:
    queues = await vhost.api("GET", "/queues/{vhost}")
    return Names(vhost.name).log in {queue["name"] for queue in queues}


async def test_own_brokers_are_applied_as_soon_as_they_answer(vhost: Vhost, tmp_path: Path) -> None:
    await vhost.add_user(BrokerUser(vhost.user, vhost.password, ("administrator",)))
    [port] = free_ports(1)
    told: list[str] = []
    brokers = brokers_of(
        vhost, port, tmp_path, told.append, f"management: '{vhost.management_url}'"
    )
    preparing = asyncio.create_task(brokers.prepare())
    await until(lambda: told, "that the broker is away", 30)
    assert "AT FAULT" in told[0]
    assert not await has_log(vhost)
    async with WanProxy() as proxy:
        await proxy.open_line("late", vhost.host, vhost.amqp_port, port=port)
        async with asyncio.timeout(60):
            await preparing
    assert await has_log(vhost)


async def test_without_management_it_declares_nothing_and_names_the_command(
    vhost: Vhost, tmp_path: Path
) -> None:
    told: list[str] = []
    async with asyncio.timeout(60):
        await brokers_of(vhost, vhost.amqp_port, tmp_path, told.append).prepare()
    [line] = told
    assert f"run `isthmus apply mesh.yaml --site paris --state {tmp_path}`" in line
    assert not await has_log(vhost)


async def test_where_somebody_has_applied_it_says_nothing(vhost: Vhost, tmp_path: Path) -> None:
    stream = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    await vhost.api("PUT", f"/queues/{{vhost}}/{Names(vhost.name).log}", stream)
    told: list[str] = []
    async with asyncio.timeout(60):
        await brokers_of(vhost, vhost.amqp_port, tmp_path, told.append).prepare()
    assert told == []


async def test_the_command_has_no_state_folder_where_that_is_the_default(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    brokers = brokers_of(vhost, vhost.amqp_port, tmp_path, told.append)
    monkeypatch.setattr(brokers, "state", DEFAULT_STATE)
    async with asyncio.timeout(60):
        await brokers.prepare()
    assert "`isthmus apply mesh.yaml --site paris`" in told[0]
