"""Orders of a site's operator reach all of its nodes, and go with the first slot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dedup.journal.journal import JournalAway
from relay.cluster.shared_orders import SharedOrders
from tests.virtual_time import in_virtual_time, let_pass

BACK_WITHIN_S = 60.0


class Facts:
    """Facts about a site, in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self._there = asyncio.Event()
        self._there.set()

    @property
    def away(self) -> bool:
        """True while no quorum answers. May be set."""
        return not self._there.is_set()

    @away.setter
    def away(self, is_away: bool) -> None:
        (self._there.clear if is_away else self._there.set)()

    async def back(self, failures: int) -> None:
        """Wait until a quorum answers again."""
        async with asyncio.timeout(BACK_WITHIN_S):
            await self._there.wait()

    async def fact(self, name: str) -> str | None:
        await self._ask()
        return self.kept.get(name)

    async def replace_fact(self, name: str, before: str | None, after: str) -> bool:
        await self._ask()
        is_same = self.kept.get(name) == before
        if is_same:
            self.kept[name] = after
        return is_same

    async def _ask(self) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise JournalAway("no quorum in memory")


class Node:
    """Node with an orders file."""

    def __init__(self, facts: Facts, folder: Path, name: str) -> None:
        self.file = folder / name / "holds.json"
        self.file.parent.mkdir()
        self.orders = SharedOrders(self.file, facts)

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


def giver_and_other(folder: Path) -> tuple[Facts, Node, Node]:
    """Two nodes, the first of which has the first slot, and what they share."""
    facts = Facts()
    one, other = Node(facts, folder, "a"), Node(facts, folder, "b")
    one.orders.give(is_giver=True)
    return facts, one, other


@in_virtual_time
async def test_the_node_with_the_first_slot_gives_its_orders_to_the_others(tmp_path: Path) -> None:
    _, one, other = giver_and_other(tmp_path)
    other.file.write_text("old")
    with one.running(), other.running():
        await let_pass(5)
        assert other.content == "old", "nobody has given an order"
        one.file.write_text("paused")
        await let_pass(3)
        assert other.content == "paused"
        one.file.write_text("resumed")
        await let_pass(3)
        assert other.content == "resumed"


@in_virtual_time
async def test_orders_go_on_with_the_node_that_takes_the_first_slot(tmp_path: Path) -> None:
    _, one, other = giver_and_other(tmp_path)
    one.file.write_text("paused")
    with one.running(), other.running():
        await let_pass(3)
        one.orders.give(is_giver=False)
        other.orders.give(is_giver=True)
        other.file.write_text("resumed")
        await let_pass(5)
        assert (one.content, other.content) == ("resumed", "resumed")


@in_virtual_time
async def test_a_node_that_does_not_know_that_it_has_lost_the_first_slot_gives_nothing_old(
    tmp_path: Path,
) -> None:
    facts, one, other = giver_and_other(tmp_path)
    one.file.write_text("paused")
    with one.running():
        await let_pass(3)
    other.file.write_text("resumed")
    other.orders.give(is_giver=True)
    with other.running():
        await let_pass(3)
    with one.running(), other.running():
        await let_pass(5)
    assert facts.kept["orders"] == "resumed"


@in_virtual_time
async def test_a_node_with_an_empty_folder_knows_the_order_before_its_slot_begins(
    tmp_path: Path,
) -> None:
    facts, one, new = giver_and_other(tmp_path)
    one.file.write_text("paused")
    with one.running():
        await let_pass(3)
    # All nodes have ended; nobody has the first slot.
    facts.away = True
    bringing = asyncio.create_task(new.orders.bring(facts.back))
    await let_pass(10)
    assert not bringing.done()
    facts.away = False
    await bringing
    assert new.content == "paused"
    new.file.write_text("resumed")
    new.orders.give(is_giver=True)
    await new.orders.bring(facts.back)
    assert new.content == "resumed", "it has the orders itself"


@in_virtual_time
async def test_orders_stay_while_the_journal_or_the_disk_is_away(tmp_path: Path) -> None:
    facts, one, other = giver_and_other(tmp_path)
    one.file.write_text("paused")
    with one.running(), other.running():
        await let_pass(3)
        facts.away = True
        one.file.write_text("resumed")
        await let_pass(5)
        assert other.content == "paused"
        other.file.unlink()
        other.file.parent.rmdir()
        facts.away = False
        await let_pass(5)
        other.file.parent.mkdir()
        await let_pass(3)
        assert other.content == "resumed"
