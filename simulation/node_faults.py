"""Faults of sites of several nodes, and of the servers that these share; no harm to other sites."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from relay.packing.memory_egress import Returns
from simulation.simulated_node import SimulatedNode
from simulation.site_servers import SiteServers
from simulation.world import World

_STEPS_WITHIN_S = 1.0
"""Time after which a node that does nothing is frozen nevertheless."""
_TAKEN_WITHIN_S = 10.0
LOCK_HEARTBEATS_S = 4.0
"""Time after which a broker gives up a silent node, of a site of several."""


async def freeze(
    world: World, node: SimulatedNode, for_s: float, heartbeats_s: float, after_steps: int = 0
) -> None:
    """Freeze a node, amid its work if it is to be after some steps. Its brokers give its
    connections up after a while.
    """
    life = node.lives
    frozen = asyncio.get_running_loop().create_future()

    def freeze_now() -> None:
        if not frozen.done():
            world.trace.add("freeze", node.name)
            frozen.set_result(node.freeze())

    if after_steps:
        node.after_steps(after_steps, freeze_now)
        await asyncio.wait({frozen}, timeout=_STEPS_WITHIN_S)
        if node.lives != life or not node.is_running:
            return
    freeze_now()
    await asyncio.sleep(min(for_s, heartbeats_s))
    if for_s > heartbeats_s and node.lives == life and node.is_running:
        node.lose_connections()
        await asyncio.sleep(for_s - heartbeats_s)
    world.trace.add("thaw", node.name)
    frozen.result()()


async def take_over(world: World, chance: random.Random) -> None:
    """Freeze the node that runs a site, amid a row of the journal or otherwise, for so long that
    another one takes over; maybe freeze that one too, as it does so; and thaw them.
    """
    node = _at_work(world, chance)
    if node is None or node.is_frozen:
        return
    async with asyncio.TaskGroup() as group:
        if chance.random() < 0.5:
            group.create_task(_later(chance.uniform(0.0, 20.0), _rows_held(node)))
            await asyncio.sleep(chance.uniform(0.0, 0.1))
        if not node.is_running or node.is_frozen:
            return
        if chance.random() < 0.5:
            group.create_task(_freeze_taker(world, node, chance))
        for_s = chance.choice((chance.uniform(2.0, 5.0), chance.uniform(5.0, 40.0)))
        await freeze(world, node, for_s, LOCK_HEARTBEATS_S, chance.randint(1, 40))


async def _freeze_taker(world: World, former: SimulatedNode, chance: random.Random) -> None:
    """Freeze the next node that takes a slot of the former's, amid its steps."""
    servers, slots = former.home.servers, former.at_work
    assert servers is not None
    if not slots:
        return
    slot = slots[0] if len(slots) == 1 else chance.choice(slots)
    try:
        async with asyncio.timeout(_TAKEN_WITHIN_S):
            while (taker := servers.holder(slot)) in (None, former.name):
                await servers.ensemble.changes.wait()
    except TimeoutError:
        return
    node = world.nodes[taker]
    if node.is_running and not node.is_frozen:
        await freeze(world, node, chance.uniform(1.0, 8.0), 20.0, chance.randint(1, 30))


async def move_slot(world: World, chance: random.Random) -> None:
    """Order a slot from the node that runs it to another node of its site, as an operator does."""
    node = _at_work(world, chance)
    if node is None or node.is_frozen:
        return
    slot = chance.choice(node.at_work)
    to = chance.choice([one.name for one in world.nodes_of(node.home.name) if one is not node])
    word = "move" if await node.give(slot, to) else "refused"
    world.trace.add(word, node.name, f"slot {slot} to {to}")


async def expire_sessions(world: World, chance: random.Random) -> None:
    """Expire the session of a node, or of all nodes of a site at once."""
    site, servers = _site(world, chance)
    if servers is None:
        return
    if chance.random() < 0.5:
        world.trace.add("session", site, "all")
        servers.ensemble.expire_all()
    else:
        node = chance.choice(world.nodes_of(site))
        world.trace.add("session", node.name)
        if node.access is not None:
            node.access.lose_session()
    await asyncio.sleep(0)


async def lose_ensemble(world: World, chance: random.Random) -> None:
    """Take a site's ensemble away for a while, from all nodes or from one."""
    site, servers = _site(world, chance)
    if servers is None:
        return
    for_s = chance.choice((1.0, 10.0, 40.0)) * chance.random()
    node = chance.choice(world.nodes_of(site))
    if chance.random() < 0.5:
        world.trace.add("ensemble", site, "away")
        servers.ensemble.away = True
        await asyncio.sleep(for_s)
        servers.ensemble.away = False
        if chance.random() < 0.5:
            servers.ensemble.expire_all()
        servers.ensemble.changes.wake()
    elif node.access is not None:
        world.trace.add("ensemble", node.name, "away")
        mend = node.access.cut_off()
        await asyncio.sleep(for_s)
        mend()
    world.trace.add("ensemble", site, "there")


async def trouble_journal(world: World, chance: random.Random) -> None:
    """Take a site's journal away, make it slow, or lose its answers, for a while."""
    site, servers = _site(world, chance)
    if servers is None:
        return
    kind = chance.choice(("away", "slow", "answers", "late"))
    world.trace.add("journal", site, kind)
    for_s = chance.choice((0.5, 5.0, 30.0)) * chance.random()
    if kind == "late":
        lands = [_rows_held(node) for node in world.nodes_of(site)]
        await asyncio.sleep(for_s)
        for land in lands:
            land()
        return
    servers.journal_away = kind == "away"
    servers.slower = chance.uniform(5.0, 50.0) if kind == "slow" else 1.0
    servers.answers_lost = 0.3 if kind == "answers" else 0.0
    await asyncio.sleep(for_s)
    servers.journal_away, servers.slower, servers.answers_lost = False, 1.0, 0.0
    world.trace.add("journal", site, "well")


async def lose_content(world: World, chance: random.Random) -> None:
    """Let the content store of a site lose something for good."""
    name, _ = _site(world, chance)
    world.lose_content(name, chance)


async def split_broker(world: World, chance: random.Random) -> None:
    """Let a site's cluster give both locks to a second node while the first holds them: the second
    has been told to take over, and the first may be alive, or frozen.
    """
    node = _at_work(world, chance)
    if node is None or node.access is None or node.is_frozen:
        return
    broker = world.brokers[node.home.name]
    if broker.egress.returns is Returns.FIFO:
        return  # one node, which cannot be cut in two
    world.trace.add("split", node.home.name)
    broker.forget_locks()
    if chance.random() < 0.5:
        await freeze(world, node, chance.uniform(2.0, 15.0), 20.0)
        return
    mend = node.access.cut_off()
    for _ in range(20):
        await asyncio.sleep(chance.uniform(0.1, 0.4))
        broker.forget_locks()
    mend()


def _site(world: World, chance: random.Random) -> tuple[str, SiteServers | None]:
    name, site = chance.choice(list(world.sites.items()))
    return name, site.servers


def _at_work(world: World, chance: random.Random) -> SimulatedNode | None:
    """Draw a site, and of its nodes that run slots one, if the site has several nodes."""
    name, servers = _site(world, chance)
    found = [one for one in world.nodes_of(name) if one.is_at_work and not one.is_stopping]
    if servers is None or not found:
        return None
    return found[0] if len(servers.rows) == 1 else chance.choice(found)


def _rows_held(node: SimulatedNode) -> Callable[[], None]:
    return (lambda: None) if node.access is None else node.access.hold_rows()


async def _later(after_s: float, call: Callable[[], None]) -> None:
    await asyncio.sleep(after_s)
    call()
