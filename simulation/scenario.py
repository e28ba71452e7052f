"""One seed: a mesh, its load and faults, and the check of every promise.

Two phases. In the first the applications publish, amid faults; in the second nothing goes wrong any
more, and everything has to arrive.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from federation.mesh import Mesh
from federation.partitions import partition_of
from federation.slots import SlotMap
from relay.node.watch import CallbackWatch
from relay.packing.memory_egress import Returns
from simulation.faults import Trouble
from simulation.invariants import InvariantBroken, check_ledger
from simulation.load import Load
from simulation.losses import names_of
from simulation.memory_brokers import BrokerSlot
from simulation.topologies import drawn_slots, simulated_mesh, with_partitions, with_references
from simulation.trace import Trace
from simulation.virtual_time import run_in_virtual_time
from simulation.world import NotInTime, World

DRAINED_WITHIN_S = 900.0
QUIET_S = 40.0
"""Wait, after all messages have arrived, for possible repetitions."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Complete input of a simulated world."""

    seed: int
    topology: str = "ring"
    sites: int = 3
    load: Load = field(default_factory=Load)
    trouble: Trouble = field(default_factory=Trouble)
    exchanges: int = 2
    max_rate: str = ""
    """Rate of each link in the notation of a mesh file; a mesh with rates has lanes."""
    returns: Returns = Returns.FIFO
    """Order in which egress hands out again: shuffled keeps none, and may leave doubt."""
    nodes: int = 1
    """Number of each site's nodes."""
    slots: int = 1
    """Most slots of a site: the seed draws how many each has."""
    best_effort: int = 0
    """Number of the first exchanges whose order is best effort."""
    partitions: int = 1
    """Number of each exchange's partitions; with several, messages have several keys."""

    @property
    def has_contents(self) -> bool:
        """True if some sites have a content store: where large messages are what is tried."""
        return self.nodes > 1 and self.load.big_one_in < Load().big_one_in


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """Result of one scenario; `broken` describes the broken promise, or is empty."""

    scenario: Scenario
    broken: str
    trace: Trace
    virtual_s: float
    real_s: float
    published: int
    arrived: int
    flagged: int
    faults: int
    """Number of faults drawn, omitted ones included."""

    @property
    def is_good(self) -> bool:
        return not self.broken


def run(scenario: Scenario) -> ScenarioOutcome:
    """Run the scenario to its end, in virtual time. Raise NoSuchMesh."""
    mesh = _mesh_of(scenario)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="isthmus-simulation-") as folder:
        world, broken, virtual_s = run_in_virtual_time(_live(scenario, mesh, Path(folder)))
    arrived = world.applications.all_arrived()
    return ScenarioOutcome(
        scenario,
        broken,
        world.trace,
        virtual_s,
        time.perf_counter() - began,
        world.applications.published_by().total(),
        len(arrived),
        sum(one.flagged for one in arrived),
        world.faults,
    )


def _mesh_of(scenario: Scenario) -> Mesh:
    """Return the scenario's mesh. Raise NoSuchMesh."""
    sites, exchanges, seed = scenario.sites, scenario.exchanges, scenario.seed
    slots = drawn_slots(scenario.slots, sites, exchanges, seed)
    mesh = simulated_mesh(
        scenario.topology,
        sites,
        exchanges,
        seed,
        scenario.max_rate,
        slots=slots,
        best_effort=scenario.best_effort,
    )
    mesh = with_partitions(mesh, scenario.partitions)
    return with_references(mesh, seed) if scenario.has_contents else mesh


async def _live(scenario: Scenario, mesh: Mesh, folder: Path) -> tuple[World, str, float]:
    world = World(
        mesh,
        folder,
        random.Random(scenario.seed),
        scenario.returns,
        scenario.nodes,
        has_contents=scenario.has_contents,
    )
    loop = asyncio.get_running_loop()
    callbacks = CallbackWatch(loop)
    broken = ""
    try:
        async with asyncio.TaskGroup() as group:
            aside = group.create_task(world.operate()), group.create_task(callbacks.run())
            await _phases(world, scenario)
            for task in aside:
                task.cancel()
    except Exception as error:
        # Includes the error of a node that ended by itself: no fault here may end a node for good.
        broken = _reason(error)
        world.trace.add("broken", "mesh", broken)
    finally:
        await world.kill()
    return world, broken, loop.time()


def _reason(error: Exception) -> str:
    """Describe the broken promise or the error."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, InvariantBroken | NotInTime):
        return str(error)
    where = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"


async def _phases(world: World, scenario: Scenario) -> None:
    world.start()
    chance = random.Random(world.chance.getrandbits(64))
    async with asyncio.TaskGroup() as group:
        group.create_task(world.publish(scenario.load))
        group.create_task(scenario.trouble.run(world, scenario.load.for_s, chance))
    await world.until(world.is_drained, world.left, DRAINED_WITHIN_S)
    if scenario.max_rate or (scenario.nodes > 1 and scenario.slots > 1):
        # A message that has come by one way may still be under way by another, and a slot that
        # moves to even out the nodes is nobody's for a while.
        lacks = "something is before the nodes: {}".format
        await world.until(world.is_at_rest, lambda: lacks(world.before_nodes()), DRAINED_WITHIN_S)
    await asyncio.sleep(QUIET_S)
    if not world.is_at_rest():
        raise InvariantBroken(
            f"I7: all has arrived, and something is before the nodes: {world.before_nodes()}"
        )
    await world.stop()
    world.raise_if_broken()
    for site, broker in world.brokers.items():
        for log in broker.slots:
            world.trace.add("content", log.name, log.log_digest())
        if broker.put_aside:
            raise InvariantBroken(
                f"I1 at {site}: {broker.put_aside} dead letters or in the quarantine"
            )
    for log in world.logs.values():
        _check_slot(log, world.mesh.sites[log.site].slots)
    shuffled, trouble = scenario.returns is Returns.SHUFFLED, scenario.trouble
    world.applications.check(
        doubt=shuffled or trouble.leaves_doubt(scenario.nodes),
        ordered=not shuffled,
        in_turns=trouble.in_turns or not shuffled,
    )
    check_ledgers(world)


def check_ledgers(world: World) -> None:
    """Raise InvariantBroken unless each site's ledger records what was packed and delivered there.
    The queues have been checked, and the nodes have ended.
    """
    applications = world.applications
    published, recorded = applications.published_by(), applications.surely_recorded()
    for name, home in world.sites.items():
        own = world.mesh.sites[name].cluster_id
        once_more = applications.came_once_more(name)
        check_ledger(name, own, home.ledger_rows(), published, recorded, once_more)


def _check_slot(log: BrokerSlot, slots: SlotMap) -> None:
    """Raise InvariantBroken if the log has a batch of an exchange that another of the site's slots
    judges, or refers to a content that is not in the site's store.
    """
    for lost in log.without_content():
        raise InvariantBroken(f"I10 at {log.name}: content {lost.content_id.hex()} is not stored")
    for name in names_of(log.records):
        exchange = name.series.exchange  # none for marks and canaries, which are of no slot
        slot = slots.of(exchange, partition_of(name.series.lane))
        if exchange and slot != log.number:
            raise InvariantBroken(f"I2 at {log.name}: slot {slot} judges {name}")
