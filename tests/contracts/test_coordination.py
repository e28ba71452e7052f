"""Contract of the coordination of a site's nodes, run over both twins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from relay.cluster.coordination import Coordination, CoordinationAway, CoordinationEntry
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from tests.waiting import until

Join = Callable[[], Awaitable[Coordination]]
"""Connect another node to the same ensemble."""
OWNER = "slots/0/owner"


async def _steady(node: Coordination) -> Coordination:
    await until(lambda: node.steady_since is not None, "the node is connected", 30)
    return node


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.slow)])
async def join(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Join]:
    if request.param == "memory":
        ensemble = MemoryEnsemble()

        async def join_memory() -> Coordination:
            return MemoryCoordination(ensemble)

        yield join_memory
        return
    from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
    from relay.cluster.zookeeper import ZookeeperAccess, ZookeeperCoordination

    async with AsyncExitStack() as all_nodes:
        servers = await all_nodes.enter_async_context(ZookeeperNodes(tmp_path, 3))

        async def join_zookeeper() -> Coordination:
            node = ZookeeperCoordination(
                ZookeeperAccess(hosts=",".join(servers.hosts), root="/isthmus/test/paris")
            )
            node.start()
            all_nodes.push_async_callback(node.close)
            return await _steady(node)

        yield join_zookeeper


async def test_an_entry_is_of_the_node_that_added_it_first(join: Join) -> None:
    one, other = await join(), await join()
    assert await one.read(OWNER) is None
    assert await one.add(OWNER, b"one")
    assert not await other.add(OWNER, b"other")
    assert not await one.add(OWNER, b"again")
    assert await one.read(OWNER) == CoordinationEntry(b"one", is_own=True)
    assert await other.read(OWNER) == CoordinationEntry(b"one", is_own=False)


async def test_anybody_removes_an_entry_and_nothing_happens_where_none_is(join: Join) -> None:
    one, other = await join(), await join()
    await one.remove(OWNER)
    assert await one.add(OWNER, b"one")
    await other.remove(OWNER)
    assert await one.read(OWNER) is None
    assert await other.add(OWNER, b"other")


async def test_entries_go_with_the_session_of_their_node(join: Join) -> None:
    one, other = await join(), await join()
    assert await one.add(OWNER, b"one")
    assert await other.add("nodes/other", b"other")
    await one.close()
    await until(lambda: _is_gone(other, OWNER), "the entry is gone", 30)
    assert await other.read("nodes/other") == CoordinationEntry(b"other", is_own=True)


async def _is_gone(node: Coordination, path: str) -> bool:
    return await node.read(path) is None


async def test_the_names_of_a_folder_are_sorted(join: Join) -> None:
    one, other = await join(), await join()
    assert await one.names("nodes") == []
    for node, name in ((one, "b"), (other, "a"), (one, "c")):
        assert await node.add(f"nodes/{name}", b"")
    assert await one.names("nodes") == ["a", "b", "c"]


@pytest.mark.parametrize("change", ["added", "removed", "replaced"])
async def test_a_wait_ends_when_the_entry_changes(join: Join, change: str) -> None:
    one, other = await join(), await join()
    if change != "added":
        assert await one.add(OWNER, b"one")
    seen = await other.read(OWNER)
    waiting = asyncio.create_task(other.changed(OWNER, seen))
    await asyncio.wait({waiting}, timeout=0.05)
    assert not waiting.done()
    if change != "added":
        await one.remove(OWNER)
    if change != "removed":
        assert await one.add(OWNER, b"new")
    async with asyncio.timeout(30):
        await waiting


async def test_a_wait_for_what_has_changed_already_ends_at_once(join: Join) -> None:
    one, other = await join(), await join()
    assert await one.add(OWNER, b"one")
    async with asyncio.timeout(30):
        await other.changed(OWNER, None)


async def test_a_closed_node_gets_no_answer(join: Join) -> None:
    one = await join()
    await one.close()
    assert one.steady_since is None
    with pytest.raises(CoordinationAway):
        await one.read(OWNER)
