"""One node in a simulation: its lives, and the disk that outlives them.

The disk has a store of the state of each slot, or the node's copy of it, and the node's folder.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.memory_store import MemoryStore
from dedup.store import StoreClosed
from federation.brokers.addresses import AddressBook
from federation.mesh import MulticastGroup
from relay.cluster.site_entries import ClusterMember
from relay.cluster.slot_turns import CopyProgress
from relay.group.carrier import GroupCarrier, GroupUnreachable
from relay.ledger.rows import LedgerRow
from relay.links.uplink import Uplink
from relay.log.memory_log import MemoryLog
from relay.log.open_gap import OpenGap
from relay.node.machine import GivingRefused, Machine, unshared
from relay.node.node import SiteNode
from relay.node.process import AGAIN_S
from relay.node.site_folder import slot_folder
from relay.node.slot_place import SlotPlace
from relay.node.stage_order import EndedBadly
from relay.node.stages import Stages
from relay.node.start import NodeStopped
from relay.operator.gaps import read_open_gaps
from relay.state.node_state import TABLES
from simulation.ledger_files import LedgerFiles
from simulation.memory_brokers import MemoryBrokers, Network
from simulation.os_process import OsProcess
from simulation.site_servers import ServerAccess, SiteServers

SYNC_S = 0.004
"""Time of a sync to disk."""


class SimulatedClock:
    """Clocks of a site in the loop's time; `ahead_ms` is the error of the wall clock."""

    def __init__(self, epoch_ms: int, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms
        self._epoch_ms = epoch_ms
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()

    def wall_ms(self) -> int:
        return self._epoch_ms + self.ahead_ms + int(self._loop.time() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSite:
    """Things that outlive all nodes of one site, beside the broker."""

    name: str
    network: Network
    ledgers: Sequence[LedgerFiles]
    """Ledger files of each slot."""
    servers: SiteServers | None
    """Servers that the site's nodes share; None where the site has one node."""

    def ledger_rows(self) -> Iterator[LedgerRow]:
        """Yield the ledger rows of all slots."""
        for files in self.ledgers:
            yield from files.rows()


class SimulatedSlot:
    """Slot of a node: its store and folder, and its part of the node's present process."""

    def __init__(self, number: int, folder: Path, store: MemoryStore) -> None:
        self.number = number
        self.folder = folder
        self.store = store
        """Store of the slot's state, of the present or the latest life."""
        self.node: SiteNode | None = None
        self.brokers: MemoryBrokers | None = None

    @property
    def stages(self) -> Stages | None:
        """Stages that run the slot, if the node does."""
        return None if self.node is None else self.node.stages

    @property
    def open_gaps(self) -> list[OpenGap]:
        """Gaps at which the slot's stages stand."""
        return read_open_gaps(self.folder)


class SimulatedNode:
    """Node with at most one live process, which runs all slots of the site: `start` begins a life,
    `stop` or `kill` ends it. `name` is the site's where it has no other node.
    """

    def __init__(
        self,
        name: str,
        home: SimulatedSite,
        book: AddressBook,
        folder: Path,
        clock: SimulatedClock,
        chance: random.Random,
    ) -> None:
        self.name = name
        self.home = home
        self.clock = clock
        self.lives = 0
        self.on_written: Callable[[], None] = lambda: None
        """Callback after each write of the node's state and each step of its broker."""
        self.is_stopping = False
        self.join_group: Callable[[MulticastGroup, str], GroupCarrier] = _no_group
        """Way of the node's processes into the mesh's group."""
        self._carriers: list[GroupCarrier] = []
        self._book = book
        self._folder = folder
        self._chance = chance
        self.slots = tuple(
            SimulatedSlot(slot, slot_folder(folder, slot), _new_store(home))
            for slot in range(len(home.ledgers))
        )
        self._boots = 1
        self._access: ServerAccess | None = None
        self._process = OsProcess()
        """Process of the present life."""
        self._task: asyncio.Task[None] | None = None
        self._dying: set[asyncio.Task[None]] = set()
        self._steps_left: int | None = None
        self._act: Callable[[], None] = self.kill
        for one in self.slots:
            one.store.on_write = self.step

    @property
    def node(self) -> SiteNode | None:
        """The present process's node of the site's first slot."""
        return self.slots[0].node

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def start(self) -> None:
        """Start a new process on the disk of the previous one."""
        assert self._task is None, f"{self.name} runs already"
        self.lives += 1
        self._steps_left = None
        self._carriers.clear()
        uplink = Uplink(self.clock.now)
        self._access = self._new_access(uplink)
        for slot in self.slots:
            self._prepare(slot, uplink)
        self._process = OsProcess()
        self._task = asyncio.get_running_loop().create_task(
            _run_all([slot.node for slot in self.slots if slot.node is not None], self._access),
            name=f"{self.name}, life {self.lives}",
            context=self._process.context,
        )

    def _new_access(self, uplink: Uplink) -> ServerAccess | None:
        if self.home.servers is None:
            return None
        member = ClusterMember(self.name, f"life {self.lives}", self.name)
        chance = random.Random(self._chance.getrandbits(64))
        return ServerAccess(self.home.servers, member, chance, uplink, self.step)

    def _prepare(self, slot: SimulatedSlot, uplink: Uplink) -> None:
        home = self.home
        slot.brokers = MemoryBrokers(home.network, home.name, slot.number)
        slot.node = SiteNode(
            home.name,
            self._book,
            slot.folder,
            ledger_writers=home.ledgers[slot.number],
            brokers=slot.brokers,
            machine=self._machine(slot, random.Random(self._chance.getrandbits(64))),
            place=SlotPlace(slot.number, self._folder, uplink),
        )

    def _machine(self, slot: SimulatedSlot, chance: random.Random) -> Machine:
        if self._access is None:
            boot = f"boot {self._boots}"
            state = unshared(lambda folder: slot.store)
            return Machine(
                self.clock,
                chance,
                chance.randbytes,
                lambda: boot,
                state,
                join_group=self._join_group,
            )
        progress = CopyProgress()
        return Machine(
            self.clock,
            chance,
            chance.randbytes,
            lambda: chance.randbytes(8).hex(),
            self._access.state(slot.number, lambda folder: self._open_copy(slot), progress),
            shares_power=False,
            copy_report=progress.report,
            contents=self._access.contents(),
            join_group=self._join_group,
        )

    def _join_group(self, group: MulticastGroup, interface: str) -> GroupCarrier:
        carrier = self.join_group(group, interface)
        self._carriers.append(carrier)
        return carrier

    def _open_copy(self, slot: SimulatedSlot) -> SlotCopy:
        self._take_store(slot, slot.store.reopen())
        # Nothing is emptied within a world: snapshots have it all, and rows before them go.
        return SlotCopy(slot.store, TABLES)

    def _reopen(self) -> None:
        for slot in self.slots:
            self._take_store(slot, slot.store.reopen())

    def _take_store(self, slot: SimulatedSlot, store: MemoryStore) -> None:
        slot.store = store
        store.on_write = self.step

    def _forget_process(self) -> None:
        self._task = None
        for slot in self.slots:
            slot.node = None

    @property
    def folder(self) -> Path:
        """Folder of the node's own files."""
        return self._folder

    @property
    def stands_at_a_gap(self) -> bool:
        """True if stages of a slot stand at a gap, by what the node has written."""
        return any(slot.open_gaps for slot in self.slots)

    def bury(self) -> None:
        """Clean up after a node that ended by itself, so that it may start again."""
        assert self._task is not None
        assert self._task.done()
        self._forget_process()
        self._reopen()

    @property
    def stopped_with(self) -> NodeStopped | EndedBadly | None:
        """Error of a node that stopped for a person or ended badly, or None."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return error if isinstance(error, NodeStopped | EndedBadly) else None

    def take_up(self, book: AddressBook) -> None:
        """Change the mesh file: the node takes it up, if running. The node must not be frozen."""
        assert not self.is_frozen
        self._book = book
        if self.node is None:
            return
        try:
            for slot in self.slots:
                if slot.node is not None:
                    self._process.context.copy().run(slot.node.take_up, book)
        except StoreClosed:
            if self.node is not None:
                raise
            # The node was killed in the middle of this call.

    async def stop(self) -> None:
        """Stop the node as SIGTERM does. Raise the node's error, unless it stopped at a gap."""
        assert self._task is not None
        task, self.is_stopping = self._task, True
        for slot in self.slots:
            assert slot.node is not None
            slot.node.stop()
        try:
            await asyncio.wait({task})
        finally:
            self.is_stopping = False
        if self._task is not task:
            return  # killed meanwhile
        if self.stopped_with is not None and self.stands_at_a_gap:
            return
        task.result()
        self._forget_process()
        self._reopen()

    @property
    def is_frozen(self) -> bool:
        return self._process.is_frozen

    @property
    def access(self) -> ServerAccess | None:
        """Way of the present or latest life to the servers that the site's nodes share; None
        without these.
        """
        return self._access

    def logs_of(self, slot: int) -> Sequence[MemoryLog] | None:
        """Connections of the node to a slot's log; None for all that there are, where no other
        node has any.
        """
        brokers = self.slots[slot].brokers
        return None if self.home.servers is None or brokers is None else brokers.logs

    @property
    def at_work(self) -> list[int]:
        """Slots whose stages the node runs, by what the node knows."""
        return [slot.number for slot in self.slots if slot.stages is not None]

    @property
    def is_at_work(self) -> bool:
        """True if the node runs the stages of any slot, by what the node knows."""
        return bool(self.at_work)

    def owns(self, slot: int) -> bool:
        """Return True if the slot is this node's by the journal: otherwise its positions are from
        before another one took over, and it can write nothing any more.
        """
        if self.home.servers is None:
            return True
        ownership = self.home.servers.rows[slot].ownership
        return ownership is not None and ownership.owner.node == self.name

    async def give(self, slot: int, to: str) -> bool:
        """Order a slot that this node runs to another node; return False if that is refused."""
        node = self.slots[slot].node
        give_to = None if node is None else node.give_to
        if give_to is None:
            return False

        async def order() -> bool:
            try:
                await give_to(to)
            except GivingRefused:
                return False
            return True

        return await asyncio.get_running_loop().create_task(order(), context=self._process.context)

    def freeze(self) -> Callable[[], None]:
        """Freeze the process as SIGSTOP does. Return the call that continues it."""
        process, access = self._process, self._access
        process.freeze()
        mend = access.cut_off() if access is not None else None

        def thaw() -> None:
            if mend is not None:
                mend()
            process.go_on()

        return thaw

    def lose_connections(self) -> None:
        """End the node's connections at its brokers; a frozen node does not notice."""
        for slot in self.slots:
            assert slot.brokers is not None
            slot.brokers.give_up("heartbeats missed")

    def kill(self) -> None:
        """Kill the process as SIGKILL does: its writes stay, and nothing else happens any more."""
        self._end([slot.store.crash() for slot in self.slots])

    def lose_power(self) -> None:
        """Cut the power of the node's machine, not of the broker's: unsynced writes may be lost, of
        each slot's store its own.
        """
        self._boots += 1
        self._end([slot.store.power_cut(self._chance) for slot in self.slots])

    def kill_after(self, steps: int) -> None:
        """Kill the node after so many steps: state writes, publishes, unconfirmed appends."""
        self.after_steps(steps, self.kill)

    def after_steps(self, steps: int, act: Callable[[], None]) -> None:
        """Call `act` amid the node's work, after so many steps, unless the life ends before."""
        self._steps_left, self._act = steps, act

    def step(self) -> None:
        """Count an act of the node: a write of the state, or what its broker has done."""
        if self.node is not None:
            self.on_written()
        if self._steps_left is None or not self.is_running:
            return
        self._steps_left -= 1
        if self._steps_left < 0:
            self._steps_left = None
            self._act()

    def _end(self, left: Sequence[MemoryStore]) -> None:
        assert self._task is not None
        self._steps_left = None
        for slot, store in zip(self.slots, left, strict=True):
            self._take_store(slot, store)
            assert slot.brokers is not None
            slot.brokers.kill()
        for carrier in self._carriers:
            carrier.close()
        if self._access is not None:
            self._access.die()
        self._process.is_dead = True
        self._process.go_on()  # the tasks of a dead process have to end too
        task = self._task
        self._forget_process()
        self._dying.add(task)
        task.add_done_callback(self._dying.discard)
        task.cancel()

    async def died(self) -> None:
        """Wait for the end of all killed lives; their errors are ignored."""
        await asyncio.gather(*self._dying, return_exceptions=True)

    def raise_if_ended(self) -> None:
        """Raise the error of a node that has ended by itself."""
        task = self._task
        if task is not None and task.done():
            task.result()
            raise RuntimeError(f"the node {self.name} ended by itself")


def _no_group(group: MulticastGroup, interface: str) -> GroupCarrier:
    raise GroupUnreachable("the world has no group")


def _new_store(home: SimulatedSite) -> MemoryStore:
    tables = TABLES if home.servers is None else (*TABLES, COPY)
    return MemoryStore(tables, sync_time=lambda: asyncio.sleep(SYNC_S))


async def _run_all(slots: Sequence[SiteNode], access: ServerAccess | None) -> None:
    """Run the nodes of all slots until the last has ended. As in `RelayProcess`, a slot that stops
    for a person ends the others in order, and a slot that another node may take begins again.
    """
    ended: list[NodeStopped | EndedBadly] = []

    async def run(slot: SiteNode) -> None:
        try:
            while not await _has_ended(slot):
                await asyncio.sleep(AGAIN_S)
        except (NodeStopped, EndedBadly) as error:
            ended.append(error)
            for one in slots:
                one.stop()

    try:
        async with asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(run(slot))
    finally:
        if access is not None:
            await access.close()
    if ended:
        raise ended[0]


async def _has_ended(slot: SiteNode) -> bool:
    """Run the node of a slot. Return False if it ended badly and is to begin again."""
    try:
        await slot.run()
    except EndedBadly:
        if slot.is_to_end or slot.copy_report is None:
            raise
        return False
    return True
