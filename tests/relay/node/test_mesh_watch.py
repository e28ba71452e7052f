"""The mesh file under the eyes of a node's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import Credentials
from federation.mesh import Mesh
from federation.mesh_file import MeshFileError, parse_mesh, read_mesh
from relay.node.mesh_watch import MeshWatch, why_not_cut, why_over, why_refused
from tests.waiting import until

TWO = """\
mesh: m
topology: custom
links: [{from: a, to: b, both: true}]
exchanges: [{name: orders}]
sites: {a: {}, b: {}}
"""


class Files:
    """A mesh file and what it includes, read as a node's process reads them."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.parts: tuple[Path, ...] = ()
        self.reads = 0
        self.taken: list[str] = []
        self.refused: list[str] = []
        self.cannot_take: OSError | None = None
        self.just_read: Callable[[], object] = lambda: None

    def files(self) -> tuple[Path, ...]:
        return self.file, *self.parts

    def read(self) -> AddressBook:
        self.reads += 1
        reading = read_mesh(self.file)
        self.just_read()
        self.parts = reading.files
        if reading.mesh is None:
            raise MeshFileError(reading.problems)
        return AddressBook(reading.mesh, Credentials({}), {}, {})

    def take_up(self, book: AddressBook) -> None:
        if self.cannot_take is not None:
            raise self.cannot_take
        self.taken.append(book.mesh.revision)

    @asynccontextmanager
    async def watched(self, look_every_s: float = 0.01) -> AsyncIterator[MeshWatch]:
        watch = MeshWatch(
            self, self.take_up, self.refused.append, look_every_s=look_every_s, still_for_s=0.01
        )
        task = asyncio.create_task(watch.run())
        try:
            await until(lambda: self.taken or self.refused, "first read", 10)
            yield watch
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "mesh.yaml").write_text(TWO)
    return Files(tmp_path / "mesh.yaml")


async def test_a_changed_file_is_taken_up_and_one_that_stays_is_not_read_again(
    files: Files,
) -> None:
    async with files.watched():
        files.file.write_text(TWO.replace("orders", "stock"))
        await until(lambda: len(set(files.taken)) == 2, "the change taken up", 10)
        reads = files.reads
        files.file.write_text(TWO)
        await until(lambda: files.reads > reads, "read again", 10)
        assert files.reads == reads + 1
    assert not files.refused


async def test_a_broken_file_is_said_with_its_place_and_mended_later(files: Files) -> None:
    async with files.watched():
        files.file.write_text(TWO.replace("to: b", "to: c").replace("name: orders", "nam: orders"))
        await until(lambda: files.refused, "refused", 10)
        assert files.refused[0].startswith(f"{files.file}:3:")
        assert "`isthmus validate`" in files.refused[0]
        files.file.unlink()
        await until(lambda: "cannot be read" in files.refused[-1], "gone", 10)
        files.file.write_text(TWO.replace("orders", "stock"))
        await until(lambda: len(files.taken) == 2, "mended", 10)


async def test_a_change_of_an_included_file_is_a_change(files: Files, tmp_path: Path) -> None:
    sites = tmp_path / "sites.yaml"
    sites.write_text("sites: {b: {}}\n")
    files.file.write_text(TWO.replace("b: {}}", "}") + "include: [sites.yaml]\n")
    async with files.watched():
        sites.write_text("sites: {b: {cluster_id: bb}}\n")
        await until(lambda: len(set(files.taken)) == 2, "taken up", 10)


async def test_an_included_file_that_changes_just_after_it_was_first_read_is_read_again(
    files: Files, tmp_path: Path
) -> None:
    sites = tmp_path / "sites.yaml"
    sites.write_text("sites: {b: {}}\n")
    files.file.write_text(TWO.replace("b: {}}", "}") + "include: [sites.yaml]\n")
    files.just_read = lambda: sites.write_text("sites: {b: {cluster_id: bb}}\n")
    async with files.watched():
        await until(lambda: len(set(files.taken)) == 2, "taken up", 10)


async def test_sighup_does_not_wait_for_the_next_look(files: Files) -> None:
    async with files.watched(look_every_s=3600) as watch:
        files.file.write_text(TWO.replace("orders", "stock"))
        watch.look_now()
        await until(lambda: len(files.taken) == 2, "taken up", 10)


async def test_what_cannot_be_written_down_is_tried_again(files: Files) -> None:
    files.cannot_take = OSError(28, "No space left on device")
    async with files.watched():
        await until(lambda: len(files.refused) >= 2, "tried again", 10)
        files.cannot_take = None
        await until(lambda: files.taken, "taken up", 10)


FILE = "mesh: m\ntopology: complete\nexchanges: [{name: orders}]\nsites: {a: {}, b: {}, c: {}}\n"


def mesh(text: str = FILE) -> Mesh:
    found = parse_mesh(text.encode()).mesh
    assert found is not None
    return found


def test_another_name_of_the_mesh_is_refused_though_the_site_is_not_in_it() -> None:
    other = mesh(FILE.replace("mesh: m", "mesh: n").replace("a: {}", "d: {}"))
    assert "cannot change its name" in why_refused(mesh(), other, "a")


def test_another_cluster_id_is_refused_by_the_site_itself_only() -> None:
    other = mesh(FILE.replace("a: {}", "a: {cluster_id: aa}"))
    assert "'aa'" in why_refused(mesh(), other, "a")
    assert not why_refused(mesh(), other, "b")


def test_other_partitions_are_refused_by_a_site_of_several_slots_only() -> None:
    slots = FILE.replace("a: {}", "a: {slots: 2}")
    cut = slots.replace("name: orders", "name: orders, partitions: 4")
    refused = why_refused(mesh(slots), mesh(cut), "a")
    assert "cuts orders into 4 partitions" in refused
    assert "an exchange of another name" in refused
    assert not why_refused(mesh(slots), mesh(cut), "b")
    another = cut.replace("{name: orders", "{name: orders}, {name: more")
    assert not why_refused(mesh(slots), mesh(another), "a")
    elsewhere = "name: orders, from: [b], to: [c]"
    only_others = mesh(slots.replace("name: orders", elsewhere))
    assert not why_refused(only_others, mesh(cut.replace("name: orders", elsewhere)), "a")


def test_an_exchange_that_was_away_keeps_its_partitions_at_a_site_of_several_slots() -> None:
    slots = FILE.replace("a: {}", "a: {slots: 2}")
    cut = slots.replace("name: orders", "name: orders, partitions: 4")
    away = slots.replace("name: orders", "name: others")
    assert not why_not_cut(mesh(away), mesh(cut), "a")
    assert why_not_cut(mesh(slots), mesh(cut), "a")  # which the node compares with, too


def test_a_site_that_is_gone_ends_and_says_whether_it_was_drained() -> None:
    smaller = mesh(
        FILE.replace("c: {}", "").replace("complete", "custom")
        + "links: [{from: a, to: b, both: true}]\n"
    )
    assert not why_refused(mesh(), smaller, "c")
    assert "not drained" in why_over(smaller, "c", is_drained=False)
    assert "it was drained" in why_over(smaller, "c", is_drained=True)
    assert not why_over(smaller, "a", is_drained=False)
