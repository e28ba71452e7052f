"""A repair over HTTP, with nodes in memory: who is asked, what is sent, what is told."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from isthmus.lost_messages import Lost
from isthmus.repair import RepairWork
from relay.admin.admin import Admin
from relay.admin.operator_routes import RepairedSite, RepairRoutes, write_token
from relay.batches.batch import BatchName
from relay.ledger_proof import LedgerUnreadable
from relay.operator.repair_wanted import Wanted, by_place
from relay.operator.repairing import (
    NotSent,
    RepairFailed,
    RepairProgress,
    RepairRequest,
    Step,
    Waits,
)

SITES = ("paris", "tokyo", "lima")
FILE = "mesh: acme\ntopology: complete\noutage_window: 72h\nexchanges: [{name: orders}]\nsites: {"
FILE += ", ".join(f"{site}: {{}}" for site in SITES) + "}\n"
IN_A_BATCH = 100


def batch(number: int, origin: str = "paris") -> BatchName:
    return BatchName.parse(f"{origin}/0102030405060708/orders.0>*/{number}")


def lost(number: int, destination: str = "tokyo", origin: str = "paris") -> Lost:
    return Lost(batch(number, origin), 0, number.to_bytes(16), destination, "2026-11-21T00:00:00Z")


@dataclass
class Node:
    """A site's stages, as far as a repair asks them."""

    has: set[int]
    """Numbers of the batches in its log."""
    site: str = "paris"
    fails_after: int = -1
    settled: set[BatchName] = field(default_factory=set)
    sent: list[Wanted] = field(default_factory=list)
    export_failure: str = ""
    written: int = 0
    rate: float = 0.0
    busy_for: str = ""
    refuses: set[int] = field(default_factory=set)
    refuses_to: tuple[str, ...] = ()
    """... or only to these."""
    requests: list[RepairRequest] = field(default_factory=list)
    expected: list[tuple[set[bytes], int]] = field(default_factory=list)
    ledger_failure: str = ""

    async def look(self, request: RepairRequest) -> AsyncGenerator[Step, None]:
        yield RepairProgress(len(self.has))
        yield [one for one in request.wanted if one.batch.sequence not in self.has]

    async def send(self, request: RepairRequest, rate: float) -> AsyncGenerator[Step, None]:
        self.rate = rate
        self.requests.append(request)
        if self.busy_for:
            yield Waits(self.busy_for, 17, 42.0)
        wanted = [one for some in by_place(request.wanted).values() for one in some.values()]
        allowed: list[Wanted] = []
        for one in wanted:
            if one.batch.sequence not in self.refuses:
                allowed.append(one)
                continue
            refused_to = [
                to for to in one.destinations if to in (self.refuses_to or one.destinations)
            ]
            others = tuple(to for to in one.destinations if to not in refused_to)
            yield NotSent(one._replace(destinations=tuple(refused_to)), "upgrade")
            if others:
                allowed.append(one._replace(destinations=others))
        wanted = allowed
        found = [one for one in wanted if one.batch.sequence in self.has]
        for first in range(0, len(found), IN_A_BATCH):
            if self.fails_after >= 0 and first >= self.fails_after:
                raise RepairFailed("the packer began anew: ask again")
            some = tuple(found[first : first + IN_A_BATCH])
            self.sent += some
            yield RepairProgress(first, batch(1000 + len(self.sent), self.site), some)
        yield [one for one in wanted if one not in found]

    async def expect(self, identities: Iterable[bytes], since_ms: int) -> None:
        self.expected.append((set(identities), since_ms))
        if self.ledger_failure:
            raise LedgerUnreadable(self.ledger_failure)

    async def export_ledger(self) -> str:
        self.written += 1
        return self.export_failure

    @property
    def as_site(self) -> RepairedSite:
        return cast(RepairedSite, _Site(self))


class _Site:
    def __init__(self, node: Node) -> None:
        self.repairing = node
        self.expect = node.expect
        self.settled = node.settled
        self.export_ledger = node.export_ledger


class Process:
    """Serves some nodes, as a relay process of this machine."""

    def __init__(self, state: Path, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.token = "secret"
        routes = RepairRoutes(lambda site: nodes[site].as_site, self.token)
        self.admin = Admin(dict, extend=routes.add_to)
        self.state = state
        self.port = 0

    async def start(self) -> None:
        self.port = await self.admin.start()
        for site in self.nodes:
            folder = self.state / "sites" / site
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "node.json").write_text(json.dumps({"pid": 1, "admin_port": self.port}))
            write_token(folder, self.token)


Serve = Callable[..., Any]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    processes: list[Process] = []

    async def start(**nodes: Node) -> Process:
        process = Process(tmp_path / "state", nodes)
        processes.append(process)
        await process.start()
        return process

    yield start
    for process in processes:
        await process.admin.close()


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    (tmp_path / "mesh.yaml").write_text(FILE)
    return load_mesh(tmp_path / "mesh.yaml")


async def worked(mesh: Mesh, folder: Path, *messages: Lost, dry_run: bool = False) -> RepairWork:
    work = RepairWork(mesh, folder / "state", list(messages))
    await work.run(500, lambda said: None, dry_run=dry_run)
    return work


def numbers(sent: Iterable[Lost]) -> list[int]:
    return [one.batch.sequence for one in sent]


async def test_the_next_site_is_asked_for_what_one_does_not_have(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {"paris": Node({1}), "tokyo": Node({1, 2, 3}), "lima": Node({2})}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1), lost(2), lost(3), lost(4))
    assert {site: numbers(sent) for site, sent in work.sent.items()} == {
        "paris": [1],
        "lima": [2],
        "tokyo": [3],
    }
    assert numbers(work.irrecoverable) == [4]
    assert (work.not_asked, work.problems) == ([], {})
    assert nodes["paris"].rate == 500
    assert [one.destinations for one in nodes["lima"].sent] == [("tokyo",)]


async def test_messages_that_an_absent_site_may_have_are_not_given_up(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    await serve(paris=Node({1}), tokyo=Node(set()))
    work = await worked(mesh, tmp_path, lost(1), lost(2))
    assert numbers(work.sent["paris"]) == [1]
    assert (numbers(work.not_asked), work.irrecoverable) == ([2], [])
    assert list(work.problems) == ["lima"]
    assert "run this where it runs" in work.problems["lima"]


async def test_messages_for_a_departed_site_are_listed_apart_and_not_requested(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {site: Node({1, 2}) for site in SITES}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1), lost(2, "gone"))
    assert (numbers(work.departed), work.irrecoverable) == ([2], [])
    assert [one.batch.sequence for node in nodes.values() for one in node.sent] == [1]


async def test_a_site_that_fails_half_way_has_sent_half(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    all_of_them = set(range(250))
    nodes = {"paris": Node(all_of_them, fails_after=100), "lima": Node(all_of_them, "lima")}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, *map(lost, range(250)))
    assert {site: len(sent) for site, sent in work.sent.items()} == {"paris": 100, "lima": 150}
    assert "the packer began anew" in work.problems["paris"]
    assert len(work.batches["tokyo"]) == 3


async def test_a_site_at_work_for_another_repair_is_reported_at_once_and_in_the_end(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    await serve(paris=Node({1}, busy_for="the first repair"), tokyo=Node(set()), lima=Node(set()))
    warned: list[str] = []
    work = RepairWork(mesh, tmp_path / "state", [lost(1)], warn=warned.append)
    await work.run(500, lambda said: None, dry_run=False)
    (said,) = warned
    assert said.startswith("paris is at work for the first repair, on 17 messages, for 42 s")
    waited = work.as_json()["waited"]["paris"]
    assert (waited["for"], waited["messages"], waited["for_s"]) == ("the first repair", 17, 42.0)
    assert numbers(work.sent["paris"]) == [1]


async def test_a_refused_message_is_asked_of_no_other_site_and_comes_with_a_remedy(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {"paris": Node({1, 2}, refuses={2}), "tokyo": Node({2}), "lima": Node({2})}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1), lost(2))
    assert numbers(work.sent["paris"]) == [1]
    assert [(one.batch.sequence, why) for one, why in work.refused] == [(2, "upgrade")]
    assert [one["why"] for one in work.as_json()["refused"]] == ["upgrade"]
    assert not nodes["lima"].sent
    (request,) = nodes["paris"].requests
    assert request.take_pieces == {"tokyo"}
    assert "process" in request.by


async def test_a_message_refused_to_one_site_is_sent_to_another(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {site: Node({1}, refuses={1}, refuses_to=("lima",)) for site in SITES}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1, "tokyo"), lost(1, "lima"))
    assert work.sent["paris"] == [lost(1, "tokyo")]
    assert work.refused == [(lost(1, "lima"), "upgrade")]
    assert set(work.batches) == {"tokyo"}
    assert (work.not_asked, work.irrecoverable) == ([], [])
    assert len(nodes["paris"].requests) == 1


async def test_an_allowed_message_that_was_not_sent_is_asked_of_the_next_site(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {site: Node({1}, site, refuses={1}, refuses_to=("lima",)) for site in SITES}
    nodes["paris"].fails_after = 0
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1, "tokyo"), lost(1, "lima"))
    assert work.sent == {"lima": [lost(1, "tokyo")]}
    assert work.refused == [(lost(1, "lima"), "upgrade")]


async def test_destinations_look_through_their_ledgers_once_before_anything_is_sent(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {"paris": Node({1, 2}), "tokyo": Node(set()), "lima": Node(set())}
    nodes["lima"].ledger_failure = "rows 3 to 5 of its files are missing"
    await serve(**nodes)
    warned: list[str] = []
    messages = [lost(1), lost(2), lost(2, "lima")]
    work = RepairWork(mesh, tmp_path / "state", messages, warn=warned.append)
    await work.run(500, lambda said: None, dry_run=False)
    since_ms = 1_795_219_200_000
    assert nodes["tokyo"].expected == [({n.to_bytes(16) for n in (1, 2)}, since_ms)]
    assert nodes["lima"].expected == [({(2).to_bytes(16)}, since_ms)]
    assert nodes["paris"].expected == []
    assert warned == ["lima: rows 3 to 5 of its files are missing"]
    assert work.take_pieces == {"tokyo", "lima"}


async def test_only_looking_sends_nothing(mesh: Mesh, tmp_path: Path, serve: Serve) -> None:
    nodes = {site: Node({1, 2}) for site in SITES}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1), lost(2), lost(3), dry_run=True)
    assert numbers(work.sent["paris"]) == [1, 2]
    assert numbers(work.irrecoverable) == [3]
    assert not any(node.sent for node in nodes.values())
    assert work.batches == {}


async def test_a_message_that_two_sites_lack_is_sent_to_both(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {site: Node({1}) for site in SITES}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, lost(1, "tokyo"), lost(1, "lima"))
    assert len(work.sent["paris"]) == 2
    assert set(work.batches) == {"tokyo", "lima"}


async def test_a_repair_waits_for_arrivals_and_reports_those_that_fail(
    mesh: Mesh, tmp_path: Path, serve: Serve
) -> None:
    nodes = {site: Node(set(range(250))) for site in SITES}
    await serve(**nodes)
    work = await worked(mesh, tmp_path, *map(lost, range(250)), lost(1, "lima"))
    names = {BatchName.parse(name) for name in work.batches["lima"]}
    nodes["lima"].settled = names
    nodes["tokyo"].settled = set(map(BatchName.parse, sorted(work.batches["tokyo"])[:2]))
    await work.wait(0.0, lambda said: None)
    assert {site: len(left) for site, left in work.batches.items()} == {"tokyo": 1, "lima": 0}
    assert "have not arrived" in work.problems["tokyo"]
    assert await work.write_ledgers() == {}
    nodes["tokyo"].export_failure = "the disk is full"
    assert await work.write_ledgers() == {"tokyo": "tokyo: the disk is full"}
    assert nodes["paris"].written == 2


async def test_a_stranger_and_a_bad_request_are_refused(tmp_path: Path, serve: Serve) -> None:
    node = Node({1})
    process = await serve(paris=node)
    good = {"messages": [lost(1).wanted().as_json()]}
    url = f"http://127.0.0.1:{process.port}/sites"
    headers = {"Authorization": f"Bearer {process.token}"}

    async def status(path: str, body: Any, **how: Any) -> int:
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{url}/{path}", json=body, **how) as answer,
        ):
            return answer.status

    for path in ("paris/repair", "paris/repair/expected", "paris/repair/settled", "paris/ledger"):
        assert await status(path, good) == 401
    assert await status("oslo/repair", good, headers=headers) == 404
    for bad in ([], {}, {"messages": []}, {**good, "rate": 0}, {**good, "rate": "fast"}):
        assert await status("paris/repair", bad, headers=headers) == 400
    assert await status("paris/repair/settled", {"batches": ["?"]}, headers=headers) == 400
    assert await status("paris/repair/expected", {"identities": ["?"]}, headers=headers) == 400
    assert node.sent == []
    assert await status("paris/repair", good, headers=headers) == 200
    assert len(node.sent) == 1
