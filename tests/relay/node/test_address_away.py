"""What it takes to connect is away: a password's file for a moment, or for good."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import PasswordMissing, make_credentials
from federation.mesh_file import parse_mesh
from federation.names import Names
from relay.bulk_amqp import Connection, ConnectionFailed
from relay.delivery.local_exchange import LocalClosed
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable
from relay.links.transport.rabbit import LinkEndAddress
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.log.site_log import LogClosed
from relay.node import brokers, parts
from relay.node.brokers import RabbitBrokers
from relay.node.node import SiteNode
from relay.node.process import RelayProcess
from relay.operator.holds import Holds, write_holds
from relay.packing.egress import EgressClosed
from relay.packing.memory_egress import MemoryEgress, MemoryEgressBroker
from tests.relay.deliverer_world import World, entry
from tests.waiting import until

FILE = """\
mesh: acme
topology: complete
exchanges: [{{name: orders}}]
sites:
  tokyo:
    broker: "amqp{s}://relay@rabbit.example"
    stream: "rabbitmq-stream{tls}://rabbit.example"
    password: "file:{password}"
    tls: {{ca: {ca}}}
  paris: {{}}
"""
NAMES = Names("acme")
EGRESS = NAMES.egress("orders")
QUEUE = "orders.queue"
WITHIN_S = 20.0


def book_of(password: Path, ca: Path | None = None) -> AddressBook:
    """Tokyo's broker is one's own, with its password there, and its authorities in that file."""
    file = FILE.format(
        password=password, s="s" if ca else "", tls="+tls" if ca else "", ca=ca or "/none"
    )
    if ca is None:
        file = file.replace("    tls: {ca: /none}\n", "")
    reading = parse_mesh(file.encode())
    assert reading.mesh is not None, reading.problems
    return AddressBook(reading.mesh, make_credentials(reading.mesh), {}, {})


OPEN: dict[type[Exception], Callable[[AddressBook], Awaitable[object]]] = {
    LogClosed: lambda book: RabbitBrokers().open_log(book, "tokyo"),
    EgressClosed: lambda book: RabbitBrokers().open_egress(book, "tokyo"),
    LocalClosed: lambda book: RabbitBrokers().open_exchange(book, "tokyo"),
    ConnectionFailed: lambda book: RabbitBrokers().connect(book, "tokyo", "gauge"),
}


@pytest.mark.parametrize("error", OPEN)
async def test_no_password_is_told_as_a_broker_that_is_away(
    tmp_path: Path, error: type[Exception]
) -> None:
    with pytest.raises(error, match=f"no password in the file {tmp_path}"):
        await OPEN[error](book_of(tmp_path / "password"))


@pytest.mark.parametrize("error", OPEN)
async def test_certificates_that_are_away_are_told_as_a_broker_that_is_away(
    tmp_path: Path, error: type[Exception]
) -> None:
    (tmp_path / "password").write_text("secret")
    with pytest.raises(error, match="no certificates of authorities"):
        await OPEN[error](book_of(tmp_path / "password", tmp_path / "ca.pem"))


class Nobody:
    """At the other end of every link."""

    async def connect(self) -> LinkEnd:
        raise LinkUnreachable("nobody is there")


class NoLinks(RabbitBrokers):
    def link(self, address: LinkEndAddress) -> LinkConnector:
        return Nobody()


class Site:
    """A broker in memory, which is found where RabbitMQ would be, by whoever has an address."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.password = folder / "password"
        self.password.write_text("secret")
        self.book = book_of(self.password)
        self.stream = MemoryStream()
        self.egress = MemoryEgressBroker()
        self.egress.declare(EGRESS)
        self.local = MemoryBroker()
        self.local.declare(self.book.mesh.exchanges["orders"].delivers_to, QUEUE)
        self.exchanges: list[MemoryExchange] = []
        self.neighbour = World()
        """Whose batches are found in the log, as a link would have put them there."""

        async def log(*_: object, **how: Any) -> MemoryLog:
            return await self.stream.open(mark_name=how["mark_name"])

        async def egress(uri: str, lock: str, **_: object) -> MemoryEgress:
            return await self.egress.connect(lock)

        async def exchange(*_: object, **__: object) -> MemoryExchange:
            self.exchanges.append(MemoryExchange(self.local))
            return self.exchanges[-1]

        async def connect(*_: object, **__: object) -> Connection:
            raise ConnectionFailed("nobody counts queues here")

        monkeypatch.setattr(brokers, "open_rabbit_log", log)
        monkeypatch.setattr(brokers, "connect_egress", egress)
        monkeypatch.setattr(brokers, "open_exchange", exchange)
        monkeypatch.setattr(brokers, "connect", connect)
        monkeypatch.setattr(parts, "SETTLE_S", 0.0)

    @property
    def node(self) -> SiteNode:
        return SiteNode("tokyo", self.book, self.folder / "tokyo", brokers=NoLinks())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[SiteNode]:
        node = self.node
        task = asyncio.create_task(node.run())
        try:
            await until(lambda: node.stage == "running" or task.done(), "running", WITHIN_S)
            yield node
            assert not task.done()
        finally:
            node.stop()
            await task

    def from_paris(self, number: int) -> None:
        self.stream.append_alien(self.neighbour.batch([entry(number)])[1])

    def break_connections(self) -> None:
        self.stream.break_connections()
        self.egress.break_connections()
        for exchange in self.exchanges:
            exchange.break_off("cut")

    @property
    def delivered(self) -> list[bytes]:
        return [message.body for _, message in self.local.messages[QUEUE]]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


async def test_a_node_goes_on_when_a_password_is_back_that_was_away_as_it_reconnected(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"no password in the file {site.password}"
    async with site.running() as node:
        site.from_paris(1)
        await until(lambda: site.delivered == [b"body 1"], "delivered", WITHIN_S)
        site.password.unlink()
        site.break_connections()
        assert node.stages is not None
        packer, deliverer = node.stages.packer, node.stages.deliverer
        await until(
            lambda: missing in node.reason and missing in deliverer.away,
            lambda: f"{node.reason}; {deliverer.away}",
            WITHIN_S,
        )
        assert f"log: LogClosed: {missing}" in caplog.text
        assert f"the site's broker is away: {missing}" in caplog.text
        site.password.write_text("renewed")
        site.egress.publish(EGRESS, b"key", b"from here", exchange="orders")
        site.from_paris(2)
        await until(lambda: len(site.delivered) == 2, "delivered after it", WITHIN_S)
        await until(lambda: site.egress.depth(EGRESS) == 0, "packed after it", WITHIN_S)
        assert packer.status.reason == ""


async def test_the_packer_alone_waits_for_a_password_too(site: Site) -> None:
    async with site.running() as node:
        site.password.unlink()
        site.egress.break_connections()
        assert node.stages is not None
        status = node.stages.packer.status
        await until(lambda: "no password" in status.reason, lambda: status.reason, WITHIN_S)
        site.password.write_text("renewed")
        site.egress.publish(EGRESS, b"key", b"from here", exchange="orders")
        await until(lambda: site.egress.depth(EGRESS) == 0, "packed after it", WITHIN_S)


async def test_a_node_may_be_paused_while_its_password_is_away(site: Site) -> None:
    async with site.running() as node:
        site.password.unlink()
        write_holds(node.folder, Holds(paused=True))
        assert node.stages is not None
        context = node.stages.context
        await until(lambda: context.held != "", lambda: node.stage, WITHIN_S)


async def test_a_node_does_not_begin_without_a_password(site: Site) -> None:
    site.password.unlink()
    with pytest.raises(PasswordMissing, match="No such file"):
        await site.node.run()
    process = RelayProcess([site.node])
    await process.run()
    assert f"no password in the file {site.password}" in process.stopped["tokyo"]


async def test_a_node_does_not_begin_without_its_certificates(site: Site) -> None:
    site.book = book_of(site.password, site.folder / "ca.pem")
    with pytest.raises(AddressError, match="no certificates of authorities"):
        await site.node.run()
