"""Faults of a simulated mesh: each does its harm, and is over after a while.

Some may leave deliveries in doubt: then copies may come flagged.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relay.packing.memory_egress import Returns
from simulation.group_faults import deafen, forge, lose_datagrams, take_group_away
from simulation.memory_brokers import BrokerSlot, Crossing, SiteBroker
from simulation.node_faults import (
    expire_sessions,
    freeze,
    lose_content,
    lose_ensemble,
    move_slot,
    split_broker,
    take_over,
    trouble_journal,
)
from simulation.simulated_node import SimulatedNode
from simulation.topologies import GROUPED, simulated_mesh, topologies_for
from simulation.world import LOOK_EVERY_S, World

HEARTBEATS_S = 20.0
"""Time after which either end gives up a silent connection."""


def _untouched(frame: bytes) -> Sequence[bytes]:
    return (frame,)


Strike = Callable[[World, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Kind of fault; `strike` returns when the fault is over."""

    strike: Strike
    doubt: bool = True
    """True if the fault may leave publishes to a site's own exchanges in doubt."""
    takes_over: bool = False
    """True if a site of several nodes goes on with another run, which may leave doubt: that run
    does not rely on what the former one has noted as acknowledged."""
    in_turns: bool = True
    """False if two nodes of a site may deliver at once."""


async def cut_line(world: World, chance: random.Random) -> None:
    """Make one link, or both ways of a pair, swallow all frames without a sign to its ends."""
    crossing = _crossing(world, chance)
    both = chance.random() < 0.5
    back = f"{crossing.link.receiver}-{crossing.link.sender}"
    cut = [
        one
        for one in world.network.crossings.values()
        if one.link.line_name == crossing.link.line_name or (both and one.link.line_name == back)
    ]
    world.trace.add("cut", ",".join(one.link.name for one in cut))
    for one in cut:
        one.cut()
    ends_s = chance.uniform(1.0, 60.0)
    if ends_s > HEARTBEATS_S:
        await asyncio.sleep(HEARTBEATS_S)
        for one in cut:
            one.meeting.silence_noticed()
        ends_s -= HEARTBEATS_S
    await asyncio.sleep(ends_s)
    for one in cut:
        one.mend()
    world.trace.add("mended", ",".join(one.link.name for one in cut))


async def reset_line(world: World, chance: random.Random) -> None:
    """Break the connections of one link; both ends notice."""
    crossing = _crossing(world, chance)
    world.trace.add("reset", crossing.link.name)
    crossing.meeting.close_all("connection reset")
    await asyncio.sleep(0)


async def unsteady_line(world: World, chance: random.Random) -> None:
    """Lose or duplicate frames of one link."""
    crossing = _crossing(world, chance)
    world.trace.add("unsteady", crossing.link.name)

    def tamper(frame: bytes) -> Sequence[bytes]:
        drawn = chance.random()
        if drawn < 0.05:
            return ()
        return (frame, frame) if drawn < 0.15 else (frame,)

    meeting = crossing.meeting
    meeting.tamper_data = meeting.tamper_acks = tamper
    await asyncio.sleep(chance.uniform(1.0, 30.0))
    meeting.tamper_data = meeting.tamper_acks = _untouched
    world.trace.add("steady", crossing.link.name)


async def repeat_line(world: World, chance: random.Random) -> None:
    """Repeat some frames of one link much later, into the session of that time."""
    crossing = _crossing(world, chance)
    world.trace.add("repeat", crossing.link.name)

    def comes_again() -> float | None:
        return chance.uniform(0.05, 20.0) if chance.random() < 0.2 else None

    meeting = crossing.meeting
    meeting.comes_again = comes_again
    await asyncio.sleep(chance.uniform(1.0, 30.0))
    meeting.comes_again = lambda: None
    world.trace.add("no more", crossing.link.name)


async def kill_node(world: World, chance: random.Random) -> None:
    """Kill a node, at any time or in the middle of a step, and start it again."""
    node = _running(world, chance)
    if node is None:
        return
    life = node.lives
    if chance.random() < 0.7:
        steps = chance.randrange(200)
        world.trace.add("fuse", node.name, f"{steps} steps")
        node.kill_after(steps)
        await asyncio.sleep(chance.uniform(0.0, 10.0))
    if node.is_running and node.lives == life:
        world.trace.add("kill", node.name)
        node.kill()
    await _start_again(world, node, life, chance)


async def cut_power(world: World, chance: random.Random) -> None:
    """Cut and restore the power of a node's machine."""
    node = _running(world, chance)
    if node is None:
        return
    world.trace.add("power", node.name)
    life = node.lives
    node.lose_power()
    await _start_again(world, node, life, chance)


async def freeze_node(world: World, chance: random.Random) -> None:
    """Freeze a node's process, and thaw it before or after its brokers have given it up."""
    node = _running(world, chance)
    if node is None or node.is_frozen:
        return
    await freeze(world, node, chance.choice((1.0, 20.0, 60.0)) * chance.random(), HEARTBEATS_S)


async def stop_node(world: World, chance: random.Random) -> None:
    """Stop a node in order, and start it again."""
    node = _running(world, chance)
    if node is None:
        return
    world.trace.add("stop", node.name)
    life = node.lives
    await node.stop()
    await _start_again(world, node, life, chance)


async def late_append(world: World, chance: random.Random) -> None:
    """Kill a node while its appends lie in a socket; they land beside its successor's."""
    node = _running(world, chance)
    if node is None:
        return
    log = _log(world.brokers[node.home.name], chance)
    stream = log.stream
    world.trace.add("late", _of_node(node, log))
    life = node.lives
    stream.hold_next_appends(node.logs_of(log.number))
    await asyncio.sleep(chance.uniform(0.0, 0.2))
    if node.lives == life and node.is_running and not node.is_stopping:
        node.kill()
    else:
        # The node has ended otherwise: its successor's appends must not be held.
        stream.release_held()
    landing = asyncio.create_task(_land(log, chance.uniform(0.0, 15.0)))
    await _start_again(world, node, life, chance)
    await landing


async def break_egress(world: World, chance: random.Random) -> None:
    """Break the packer's connection, or take a node from its cluster for a moment."""
    broker = _broker(world, chance)
    world.trace.add("egress", broker.site)
    if broker.egress.returns is Returns.SHUFFLED and chance.random() < 0.5:
        broker.egress.flap()
    else:
        broker.egress.break_connections("connection reset")


async def break_deliverer(world: World, chance: random.Random) -> None:
    """Break the deliverer's connection: the fate of its unconfirmed publishes stays unknown."""
    broker = _broker(world, chance)
    world.trace.add("deliverer", broker.site)
    broker.break_deliverer("connection reset")


async def lose_confirms(world: World, chance: random.Random) -> None:
    """Let a broker take the deliverer's publishes and lose its answers."""
    broker = _broker(world, chance)
    world.trace.add("confirms", broker.site)
    broker.swallows_confirms = True
    await asyncio.sleep(chance.uniform(0.1, 20.0))
    broker.swallows_confirms = False


async def break_log(world: World, chance: random.Random) -> None:
    """Break the log's connection, at once or before a confirm; a cluster changes its leader."""
    broker = _broker(world, chance)
    log = _log(broker, chance)
    if chance.random() < 0.5:
        world.trace.add("log", log.name, "breaks after storing")
        log.stream.break_after_storing()
    else:
        world.trace.add("log", log.name, "breaks")
        log.stream.break_connections("connection reset")
    if broker.egress.returns is Returns.SHUFFLED:
        log.stream.hide()


async def slow_disk(world: World, chance: random.Random) -> None:
    """Store and confirm a log's appends late."""
    broker = _broker(world, chance)
    log = _log(broker, chance)
    world.trace.add("disk", log.name)
    log.stream.confirm_s = chance.uniform(0.02, 1.0)
    await asyncio.sleep(chance.uniform(0.5, 20.0))
    log.stream.confirm_s = broker.pace.log_confirm_s
    world.trace.add("disk is fast", log.name)


async def restart_broker(world: World, chance: random.Random) -> None:
    """Take a broker away for a while, and with it the links that meet there; its disk stays."""
    broker = _broker(world, chance)
    if not broker.reachable:
        return
    world.trace.add("broker", broker.site)
    _go_away(world, broker)
    await _come_back(world, broker, chance)


def _go_away(world: World, broker: SiteBroker) -> None:
    broker.go_away()
    for crossing in world.network.crossings.values():
        if crossing.link.meeting == broker.site:
            crossing.meeting.close_all("the broker went away")


async def _come_back(world: World, broker: SiteBroker, chance: random.Random) -> None:
    await asyncio.sleep(chance.uniform(0.5, 15.0))
    broker.come_back()
    world.trace.add("back", broker.site)


async def lose_tail(world: World, chance: random.Random) -> None:
    """Cut the power of a broker's machine: the unsynced end of its log is gone."""
    broker = _broker(world, chance)
    if not broker.reachable:
        return
    log = _log(broker, chance)
    count = min(chance.randint(1, 10), len(log.stream.records))
    world.trace.add("tail", log.name, f"{count} records")
    _go_away(world, broker)
    world.lose_tail(log, count)
    await _come_back(world, broker, chance)


async def delete_log(world: World, chance: random.Random) -> None:
    """Delete a site's log under its node, and make an empty one a while later."""
    log = _log(_broker(world, chance), chance)
    if not log.stream.exists:
        return
    world.trace.add("anew", log.name, "deleted")
    world.lose_log(log)
    await asyncio.sleep(chance.uniform(0.0, 15.0))
    log.stream.create()
    world.trace.add("anew", log.name, "made")


async def eat_head(world: World, chance: random.Random) -> None:
    """Let retention eat a site's log, needed or not, but for its last records.

    Brokers do so when something is written: so not while the site's node or broker is away, nor
    before the node has ever delivered, which takes seconds, and a segment of a stream hours.
    """
    node = _running(world, chance)
    keep = chance.choice((10, 20, 40))
    if node is not None:
        broker = world.brokers[node.home.name]
        log = _log(broker, chance)
        stages = node.slots[log.number].stages
        has_delivered = stages is not None and stages.context.position is not None
        if has_delivered and broker.reachable and len(log.stream.records) > keep:
            world.eat(log, keep)
    await asyncio.sleep(0)


async def fill_queue(world: World, chance: random.Random) -> None:
    """Fill one exchange's queue at a site; the queue refuses further messages."""
    broker = _broker(world, chance)
    exchange = chance.choice(list(world.mesh.exchanges))
    world.trace.add("full", broker.site, exchange)
    broker.fill(exchange)
    await asyncio.sleep(chance.uniform(0.5, 30.0))
    broker.make_room(exchange)
    world.trace.add("room", broker.site, exchange)


async def fill_queue_beside(world: World, chance: random.Random) -> None:
    """Fill one of two queues of an exchange at a site, which refuses its share of messages."""
    broker = _broker(world, chance)
    exchange = chance.choice(list(world.mesh.exchanges))
    world.trace.add("partly-full", broker.site, exchange)
    broker.fill_beside(exchange)
    await asyncio.sleep(chance.uniform(0.5, 30.0))
    broker.make_room_beside(exchange)
    world.trace.add("room", broker.site, exchange)


async def fail_over(world: World, chance: random.Random) -> None:
    """Publish what a site's application publishes at another site too, under the same identity: the
    application does not trust its broker's confirms.
    """
    broker, other = chance.sample(list(world.brokers.values()), 2)
    world.trace.add("failover", broker.site, other.site)
    world.applications.failing_over[broker.site] = other
    await asyncio.sleep(chance.uniform(0.5, 30.0))
    world.applications.failing_over.pop(broker.site, None)
    world.trace.add("trust", broker.site)


async def slow_queue(world: World, chance: random.Random) -> None:
    """Confirm one exchange's deliveries at a site late, and no other's."""
    broker = _broker(world, chance)
    exchange = chance.choice(list(world.mesh.exchanges.values())).delivers_to
    broker.slow[exchange] = chance.uniform(0.05, 2.0)
    world.trace.add("slow", broker.site, exchange)
    await asyncio.sleep(chance.uniform(0.5, 30.0))
    broker.slow.pop(exchange, None)
    world.trace.add("fast", broker.site, exchange)


async def set_clock(world: World, chance: random.Random) -> None:
    """Set the wall clock of a node, forwards or backwards; nobody corrects it."""
    node = chance.choice(list(world.nodes.values()))
    ahead_ms = round(chance.choice((1, 60, 600)) * chance.uniform(-1000, 1000))
    world.trace.add("clock", node.name, f"{ahead_ms} ms")
    node.clock.ahead_ms = ahead_ms
    await asyncio.sleep(0)


async def change_mesh(world: World, chance: random.Random) -> None:
    """Link the same sites otherwise; lanes may go or come back, and so may a group. Nodes see the
    change in turn.
    """
    sites = len(world.mesh.sites)
    first, had_group = world.first_mesh, world.group is not None
    topologies = topologies_for(sites)
    topology = chance.choice([*topologies, *([GROUPED] * len(topologies) if had_group else ())])
    seed = chance.randrange(1000)
    world.trace.add("change", "mesh", f"{topology} {seed}")
    slots = [site.slots for site in world.mesh.sites.values()]
    exchanges = len(world.mesh.exchanges)
    mesh = simulated_mesh(topology, sites, exchanges, seed, slots=slots, signed=had_group)
    # An exchange stays in its lane: as a flow of another lane it would have another order.
    mesh = replace(mesh, exchanges=first.exchanges)
    if first.lanes:
        lanes = first.lanes if chance.random() < 0.5 else ()
        max_rate = first.links[0].max_rate
        links = tuple(replace(link, max_rate=max_rate) for link in mesh.links)
        mesh = replace(mesh, lanes=lanes, links=links)
        world.trace.add("lanes", "mesh", str(len(lanes)))
    world.change(mesh)
    most_s = chance.choice((0.1, 2.0, 30.0))

    async def sees(node: SimulatedNode, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while node.is_frozen:
            await asyncio.sleep(LOOK_EVERY_S)
        world.trace.add("sees", node.name)
        node.take_up(world.book)  # the latest book, also that of a later change

    async with asyncio.TaskGroup() as group:
        for node in world.nodes.values():
            group.create_task(sees(node, most_s * chance.random()))


FAULTS: Mapping[str, Fault] = {
    "cut": Fault(cut_line, doubt=False),
    "reset": Fault(reset_line, doubt=False),
    "unsteady": Fault(unsteady_line, doubt=False),
    "repeat": Fault(repeat_line, doubt=False),
    "egress": Fault(break_egress, doubt=False),
    "log": Fault(break_log, doubt=False),
    "stop": Fault(stop_node, doubt=False, takes_over=True),
    "kill": Fault(kill_node),
    "power": Fault(cut_power),
    "freeze": Fault(freeze_node),
    "late": Fault(late_append),
    "deliverer": Fault(break_deliverer),
    "confirms": Fault(lose_confirms),
    "broker": Fault(restart_broker),
    "tail": Fault(lose_tail),
    "anew": Fault(delete_log),
    "retention": Fault(eat_head),
    "full": Fault(fill_queue),
    "slow": Fault(slow_queue, doubt=False),
    "disk": Fault(slow_disk, doubt=False),
    "clock": Fault(set_clock, doubt=False),
    "change": Fault(change_mesh, doubt=False),
    "takeover": Fault(take_over),
    "session": Fault(expire_sessions),
    "ensemble": Fault(lose_ensemble),
    "journal": Fault(trouble_journal),
    "split": Fault(split_broker, in_turns=False),
    "content": Fault(lose_content),
    "move": Fault(move_slot),
    "lossy-group": Fault(lose_datagrams, doubt=False),
    "deaf": Fault(deafen, doubt=False),
    "no-group": Fault(take_group_away, doubt=False),
    "forger": Fault(forge, doubt=False),
    "partly-full": Fault(fill_queue_beside),
    "failover": Fault(fail_over, doubt=False),
}
"""Faults by the word of the option `--faults`."""
LOSSES = frozenset(("tail", "anew", "retention"))
"""Faults that lose records of a log.

A link that begins anew, because it carries something else now, does not learn of records eaten
before: a change together with these faults is not worked out.
"""
OF_NODES = ("takeover", "session", "ensemble", "journal", "split", "content")
"""Faults of sites of several nodes; sites of one are spared."""
OF_SHARED_SLOTS = ("move",)
"""Faults of sites whose nodes share several slots."""
OF_GROUPS = ("lossy-group", "deaf", "no-group", "forger")
"""Faults of a multicast group; worlds without one are spared."""
OF_BEST_EFFORT = ("partly-full",)
"""Faults of worlds with exchanges whose order is best effort."""
OTHERS = ("change", "failover", *OF_NODES, *OF_SHARED_SLOTS, *OF_GROUPS, *OF_BEST_EFFORT)
TOGETHER = tuple(kind for kind in FAULTS if kind not in OTHERS)
"""Faults that may strike together."""


def kinds_of_nodes(nodes: int, slots: int = 1) -> tuple[str, ...]:
    """Return the faults that strike only where sites have several nodes."""
    if nodes == 1:
        return ()
    return OF_NODES if slots == 1 else (*OF_NODES, *OF_SHARED_SLOTS)


def all_kinds(
    nodes: int, slots: int = 1, topology: str = "", best_effort: int = 0
) -> tuple[str, ...]:
    """Return the faults that may strike together where sites have so many nodes and slots, and so
    many exchanges are best effort.
    """
    of_groups = OF_GROUPS if topology == GROUPED else ()
    of_best_effort = OF_BEST_EFFORT if best_effort else ()
    return (*TOGETHER, *kinds_of_nodes(nodes, slots), *of_groups, *of_best_effort)


def without_losses(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds that may strike together with a change of the mesh."""
    return tuple(kind for kind in kinds if kind not in LOSSES)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Faults to strike while the applications publish; `kinds` are words of `FAULTS`."""

    kinds: tuple[str, ...] = TOGETHER
    every_s: float = 5.0
    """Mean time between two faults of the whole mesh."""
    without: frozenset[int] = frozenset()
    """Faults left out, by their number from 1 on; the others strike as they would."""

    def leaves_doubt(self, nodes: int) -> bool:
        """Return True if copies may come flagged where each site has so many nodes."""
        faults = [FAULTS[kind] for kind in self.kinds]
        return any(fault.doubt or (fault.takes_over and nodes > 1) for fault in faults)

    @property
    def in_turns(self) -> bool:
        """False if two nodes of a site may deliver at once."""
        return all(FAULTS[kind].in_turns for kind in self.kinds)

    async def run(self, world: World, for_s: float, chance: random.Random) -> None:
        """Strike faults, one after the other and beside each other; return after the last."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + for_s
        async with asyncio.TaskGroup() as group:
            while self.kinds:
                await asyncio.sleep(chance.expovariate(1 / self.every_s))
                if loop.time() > ends:
                    break
                fault = FAULTS[chance.choice(self.kinds)]
                # Each fault has a generator of its own, whatever the others draw meanwhile.
                own = random.Random(chance.getrandbits(64))
                world.faults += 1
                if world.faults not in self.without:
                    group.create_task(_strike(fault, world, own))


async def _strike(fault: Fault, world: World, chance: random.Random) -> None:
    await fault.strike(world, chance)


def _crossing(world: World, chance: random.Random) -> Crossing:
    return chance.choice(list(world.network.crossings.values()))


def _broker(world: World, chance: random.Random) -> SiteBroker:
    return chance.choice(list(world.brokers.values()))


def _log(broker: SiteBroker, chance: random.Random) -> BrokerSlot:
    """Draw a slot of a broker for its log; nothing is drawn where there is only one."""
    return broker.slots[0] if len(broker.slots) == 1 else chance.choice(broker.slots)


def _of_node(node: SimulatedNode, log: BrokerSlot) -> str:
    """Return the name of a node, with the slot if that is not the first."""
    return f"{node.name}.s{log.number}" if log.number else node.name


def _running(world: World, chance: random.Random) -> SimulatedNode | None:
    """Draw a node; return None unless it runs."""
    node = chance.choice(list(world.nodes.values()))
    return node if node.is_running and not node.is_stopping else None


async def _start_again(world: World, node: SimulatedNode, life: int, chance: random.Random) -> None:
    """Start a node again, unless another fault has done so."""
    await asyncio.sleep(chance.choice((0.05, 1.0, 20.0)) * chance.random())
    if not node.is_running and node.lives == life:
        world.trace.add("start", node.name)
        node.start()


async def _land(log: BrokerSlot, after_s: float) -> None:
    await asyncio.sleep(after_s)
    log.stream.release_held()
