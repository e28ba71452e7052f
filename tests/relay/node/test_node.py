"""A whole node of one site, its broker in memory: how it begins, ends and begins anew."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from dedup.rocksdb_store import RocksdbStore
from federation.brokers.addresses import AddressBook, PrivateBroker
from federation.brokers.credentials import make_credentials
from federation.mesh_file import parse_mesh
from federation.names import Names
from relay.batches.known_formats import FIRST, KNOWN, Formats
from relay.bulk_amqp import Connection, ConnectionFailed
from relay.delivery.local_exchange import LocalClosed
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable
from relay.links.transport.rabbit import LinkEndAddress
from relay.log import flights
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.node import parts
from relay.node.node import SiteNode
from relay.node.process import RelayProcess
from relay.node.recovery import LostSlot, recover
from relay.node.report import site_report
from relay.node.site_folder import STATE
from relay.node.stage_order import EndedBadly
from relay.node.stages import Stages
from relay.node.start import NodeStopped
from relay.node.watch import LoopCallbackFailed
from relay.operator.holds import Holds, write_holds
from relay.packing.memory_egress import MemoryEgress, MemoryEgressBroker
from relay.packing.packer import Packer
from relay.state.node_state import POINT_TABLES, TABLES, NodeState
from tests.relay.deliverer_world import World, entry
from tests.waiting import until

FILE = b"""\
mesh: acme
topology: complete
exchanges: [{name: orders}]
sites: {tokyo: {}, paris: {}}
"""
NAMES = Names("acme")
EGRESS = NAMES.egress("orders")
QUEUE = "orders.queue"
WITHIN_S = 20.0


class Nobody:
    """At the other end of every link."""

    async def connect(self) -> LinkEnd:
        raise LinkUnreachable("nobody is there")


class Site:
    """One whose neighbour nobody can reach: its broker, and its folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mesh = parse_mesh(FILE).mesh
        assert mesh is not None
        self.folder = folder
        self.book = AddressBook(mesh, make_credentials(mesh), {"tokyo": PrivateBroker(1, 2, 3)}, {})
        self.stream = MemoryStream()
        self.egress = MemoryEgressBroker()
        self.egress.declare(EGRESS)
        self.local = MemoryBroker()
        self.local.declare(mesh.exchanges["orders"].delivers_to, QUEUE)
        for queue in (NAMES.dead_letters, NAMES.quarantine):
            self.local.declare(queue, queue)
        self.exchanges: list[MemoryExchange] = []
        self.local_is_away = False
        self.neighbour = World()
        """Whose batches are found in the log, as a link would have put them there."""
        monkeypatch.setattr(parts, "SETTLE_S", 0.0)

    # As `Brokers`

    async def open_log(self, book: AddressBook, site: str) -> MemoryLog:
        return await self.stream.open(mark_name=NAMES.deliverer_mark)

    async def open_egress(self, book: AddressBook, site: str) -> MemoryEgress:
        return await self.egress.connect(NAMES.packer_lock)

    async def open_exchange(self, book: AddressBook, site: str) -> MemoryExchange:
        if self.local_is_away:
            raise LocalClosed("away")
        self.exchanges.append(MemoryExchange(self.local))
        return self.exchanges[-1]

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        raise ConnectionFailed("nobody counts queues here")

    def link(self, address: LinkEndAddress) -> LinkConnector:
        return Nobody()

    def in_use(self) -> Mapping[str, str]:
        return {}

    @contextlib.asynccontextmanager
    async def running(self, formats: Formats = KNOWN) -> AsyncIterator[SiteNode]:
        node = SiteNode("tokyo", self.book, self.folder, formats, brokers=self)
        task = asyncio.create_task(node.run())
        try:
            await until(lambda: node.stage == "running" or task.done(), "running", WITHIN_S)
            if task.done():
                await task
            yield node
        finally:
            node.stop()
            await task

    async def ends_as_it_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run a node that is to end in the moment in which it begins to use the state."""
        node = SiteNode("tokyo", self.book, self.folder, brokers=self)

        async def never_synced(store: RocksdbStore) -> None:
            patched.undo()
            node.stop()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(RocksdbStore, "synced", never_synced)
            await asyncio.wait_for(node.run(), WITHIN_S)
        assert not node.is_up.is_set()

    def from_paris(self, *numbers: int, **header: object) -> None:
        """A batch of these messages."""
        entries = [entry(number) for number in numbers]
        _, data = self.neighbour.batch(entries, **header)  # type: ignore[arg-type]
        self.stream.append_alien(data)

    @contextlib.contextmanager
    def state(self) -> Iterator[NodeState]:
        """Open the state that the last node has left."""
        store = RocksdbStore(self.folder / STATE, TABLES, point_tables=POINT_TABLES)
        try:
            yield NodeState(store)
        finally:
            store.close()

    @property
    def was_clean(self) -> bool:
        """True if its last node has ended in order, as its state says."""
        with self.state() as state:
            return state.was_clean

    @property
    def was_answered(self) -> bool:
        """True if nothing of its last node can arrive later, as its state says."""
        with self.state() as state:
            return state.was_answered

    @property
    def is_quiesced(self) -> bool:
        """True if its last node has left nothing under way, as its state says."""
        with self.state() as state:
            return state.is_quiesced

    @property
    def delivered(self) -> list[bytes]:
        return [message.body for _, message in self.local.messages[QUEUE]]

    async def until_delivered(self, count: int) -> None:
        await until(lambda: len(self.delivered) == count, lambda: f"{self.delivered}", WITHIN_S)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path / "tokyo", monkeypatch)


async def test_a_node_packs_and_delivers_and_goes_on_where_it_ended(site: Site) -> None:
    site.egress.publish(EGRESS, b"key", b"from here", exchange="orders")
    async with site.running() as node:
        site.from_paris(1, 2)
        await site.until_delivered(2)
        await until(lambda: site.egress.depth(EGRESS) == 0, "packed", WITHIN_S)
        assert node.stages is not None
        told = site_report(node)
        assert (told["state"], told["packed"]) == ("running", 1)
        await until(
            lambda: site_report(node)["undelivered_messages"] == 0, "all is settled", WITHIN_S
        )
    assert site_report(node)["state"] == "stopped"
    assert node.stages is None
    async with site.running():
        site.from_paris(3)
        await site.until_delivered(3)
    assert site.delivered == [b"body 1", b"body 2", b"body 3"]
    assert list((site.folder / "ledger").rglob("*.parquet"))


async def test_a_node_that_is_told_to_end_while_its_broker_is_away_ends(site: Site) -> None:
    site.stream.reachable = False
    node = SiteNode("tokyo", site.book, site.folder, brokers=site)
    task = asyncio.create_task(node.run())
    await until(lambda: "unreachable" in node.reason, lambda: node.reason, WITHIN_S)
    assert site_report(node)["state"] == "starting"
    node.stop()
    await task
    assert site_report(node)["reason"] == "ended"


async def test_a_folder_that_is_lost_stops_the_node_until_it_is_made_anew(site: Site) -> None:
    async with site.running():
        site.from_paris(1, 2)
        await site.until_delivered(2)
    shutil.rmtree(site.folder / "state")
    node = SiteNode("tokyo", site.book, site.folder, brokers=site)
    with pytest.raises(NodeStopped, match="isthmus recover"):
        await asyncio.wait_for(node.run(), WITHIN_S)
    told = site_report(node)  # before its process has heard of it
    assert (told["state"], "isthmus recover" in told["reason"]) == ("stopped", True)
    found = await recover(LostSlot("tokyo", site.book, brokers=site), site.folder)
    assert (found.settled_messages, found.doubtful_messages) == (2, 0)
    await recover(LostSlot("tokyo", site.book, brokers=site), site.folder)
    kept = sorted(path.name for path in site.folder.glob("state.*"))
    assert kept == ["state.lost-1", "state.lost-2"]  # the first is what the stopped node began
    async with site.running():
        site.from_paris(3)
        await site.until_delivered(3)
    assert site.delivered == [b"body 1", b"body 2", b"body 3"]


async def test_a_log_of_a_newer_version_stops_the_node_and_is_not_recovered_from(
    site: Site,
) -> None:
    site.from_paris(1, format=2)
    with pytest.raises(NodeStopped, match="start the version"):
        async with site.running(FIRST):
            pass
    with pytest.raises(NodeStopped, match="start the version"):
        await recover(LostSlot("tokyo", site.book, formats=FIRST, brokers=site), site.folder)
    await recover(LostSlot("tokyo", site.book, brokers=site), site.folder)


async def test_a_node_that_quiesces_takes_nothing_and_leaves_word_that_nothing_is_under_way(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_holds(site.folder, Holds(quiescing=True))
    site.egress.publish(EGRESS, b"key", b"from here", exchange="orders")
    async with site.running() as node:
        assert site_report(node)["state"] == "quiescing"
        await until(
            lambda: site_report(node)["state"] == "quiesced",
            lambda: f"{site_report(node)}",
            WITHIN_S,
        )
        assert site.egress.depth(EGRESS) == 1
    assert site.is_quiesced
    # The next one ends before it has looked, and has received nothing.
    async with site.running() as node:
        assert site_report(node)["state"] == "quiescing"
        assert node.stages is not None
        assert not node.stages.links.is_receiving
    assert site.is_quiesced
    # Another has begun with the state when it is to end, and not with its stages.
    await site.ends_as_it_begins(monkeypatch)
    assert site.is_quiesced
    write_holds(site.folder, Holds())
    async with site.running():
        await until(lambda: site.egress.depth(EGRESS) == 0, "packed", WITHIN_S)
    assert not site.is_quiesced


async def test_a_node_that_ends_while_it_quiesces_leaves_no_such_word(site: Site) -> None:
    write_holds(site.folder, Holds(quiescing=True))
    async with site.running():
        pass
    assert not site.is_quiesced


async def _deliver_until_the_disk_is_full(stages: Stages) -> None:
    await stages.context.stopping.wait()
    raise OSError("the disk is full")


async def test_a_node_whose_stage_fails_as_it_ends_has_not_ended_clean(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with site.running():
        pass
    assert site.was_clean
    with monkeypatch.context() as faulty:
        faulty.setattr(Stages, "deliver", _deliver_until_the_disk_is_full)
        with pytest.raises(EndedBadly, match="deliverer: the disk is full"):
            async with site.running():
                pass
    assert not site.was_clean
    async with site.running():
        site.from_paris(1)
        await site.until_delivered(1)
    assert site.was_clean


async def test_a_node_says_as_it_ends_whether_anything_of_it_can_arrive_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "LAST_BYTES_S", 0.0)
    async with site.running():
        site.from_paris(1)
        await site.until_delivered(1)
    assert site.was_answered
    async with site.running() as node:
        assert node.stages is not None
        assert node.stages.state.get("answered") is None
        site.local_is_away = True
        site.exchanges[-1].break_off("cut")
    assert site.was_clean
    assert not site.was_answered
    site.local_is_away = False
    async with site.running():
        monkeypatch.setattr(flights, "LAST_BYTES_S", 3600.0)
    assert site.was_clean
    assert not site.was_answered


async def test_a_process_of_which_a_callback_failed_ends_to_be_begun_anew(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(packer: Packer) -> None:
        raise ZeroDivisionError("a mistake of ours")

    node = SiteNode("tokyo", site.book, site.folder, brokers=site)
    site.egress.publish(EGRESS, b"key", b"from here", exchange="orders")
    with monkeypatch.context() as faulty:
        faulty.setattr(Packer, "_watch_memory", fail)
        with pytest.raises(ExceptionGroup) as failed:
            await asyncio.wait_for(RelayProcess([node]).run(), WITHIN_S)
    (cause,) = failed.value.exceptions
    assert isinstance(cause, LoopCallbackFailed)
    assert "a mistake of ours" in str(cause)
    assert not site.was_clean
    async with site.running():
        await until(lambda: site.egress.depth(EGRESS) == 0, "packed", WITHIN_S)


async def test_a_process_tells_which_of_its_sites_did_not_end_in_order(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stages, "deliver", _deliver_until_the_disk_is_full)
    node = SiteNode("tokyo", site.book, site.folder, brokers=site)
    process = RelayProcess([node])
    running = asyncio.create_task(process.run())
    await until(lambda: node.stage == "running", "running", WITHIN_S)
    process.stop()
    await running
    (reason,) = process.ended_badly.values()
    assert "did not end in order: tokyo: deliverer: the disk is full" in reason
    assert process.stopped == {}
    told = json.loads((site.folder / "node.json").read_text())
    assert told["stopped"] == reason
