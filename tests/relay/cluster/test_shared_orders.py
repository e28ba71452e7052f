"""Orders of a site's operator reach all of its nodes, and go with the first slot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.shared_orders import SharedOrders
from tests.virtual_time import in_virtual_time, let_pass


class Node:
    """Node with an orders file."""

    def __init__(self, ensemble: MemoryEnsemble, folder: Path, name: str) -> None:
        self.file = folder / name / "holds.json"
        self.file.parent.mkdir()
        self.coordination = MemoryCoordination(ensemble)
        self.orders = SharedOrders(self.file, self.coordination)

    @property
    def content(self) -> str:
        return self.file.read_text() if self.file.exists() else ""

    @contextmanager
    def running(self) -> Iterator[None]:
        task = asyncio.get_running_loop().create_task(self.orders.run())
        try:
            yield
        finally:
            assert not task.done()
            task.cancel()


@in_virtual_time
async def test_the_node_with_the_first_slot_gives_its_orders_to_the_others(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    one, other = Node(ensemble, tmp_path, "a"), Node(ensemble, tmp_path, "b")
    other.file.write_text("old")
    one.orders.gives = True
    with one.running(), other.running():
        await let_pass(5)
        assert other.content == "old", "nobody has given an order"
        one.file.write_text("paused")
        await let_pass(3)
        assert other.content == "paused"
        one.file.write_text("resumed")
        await let_pass(3)
        assert other.content == "resumed"
        one.coordination.expire()
        await let_pass(3)
        assert ensemble.entries["orders"][0] == b"resumed"


@in_virtual_time
async def test_orders_go_on_with_the_node_that_takes_the_first_slot(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    one, other = Node(ensemble, tmp_path, "a"), Node(ensemble, tmp_path, "b")
    one.file.write_text("paused")
    one.orders.gives = True
    with one.running(), other.running():
        await let_pass(3)
        one.orders.gives, other.orders.gives = False, True
        other.file.write_text("resumed")
        await let_pass(5)
        assert (one.content, other.content) == ("resumed", "resumed")


@in_virtual_time
async def test_orders_stay_while_the_ensemble_or_the_disk_is_away(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    one, other = Node(ensemble, tmp_path, "a"), Node(ensemble, tmp_path, "b")
    one.orders.gives = True
    one.file.write_text("paused")
    with one.running(), other.running():
        await let_pass(3)
        ensemble.away = True
        one.file.write_text("resumed")
        await let_pass(5)
        assert other.content == "paused"
        other.file.unlink()
        other.file.parent.rmdir()
        ensemble.away = False
        await let_pass(5)
        other.file.parent.mkdir()
        await let_pass(3)
        assert other.content == "resumed"
