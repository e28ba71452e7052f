"""Changes of the slots of a site whose nodes share its states, cut short at any moment."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from dedup.barrier import Verdict
from dedup.journal.journal import SlotReserved
from dedup.journal.memory_journal import MemoryJournal, SlotRows
from dedup.journal.slot_copy import COPY, SlotCopy
from dedup.journal.slot_taking import SlotTaking
from dedup.memory_store import MemoryStore
from federation.slots import ONE_SLOT, SlotMap
from relay.cluster.coordination import CoordinationAway
from relay.cluster.memory_coordination import MemoryCoordination, MemoryEnsemble
from relay.cluster.moving import MOVED_IN, MOVED_OUT, MoveRefused, move_access, move_in, move_out
from relay.cluster.shared_orders import ORDERS
from relay.cluster.shared_reslotting import SharedReslotting
from relay.node.site_folder import RESLOT
from relay.operator.holds import Holds, read_holds
from relay.reslot.reslotting import ReslotRefused, Reslotting
from relay.state.node_state import TABLES, Commit
from tests.relay.reslot.former_site import EXCHANGES, FOUR, TWO, Site, dying_at
from tests.virtual_time import in_virtual_time, let_pass

if TYPE_CHECKING:
    from relay.cluster.site_servers import SharedServers

OTHER = SlotMap(3, {"orders": 2})


async def retry(failures: int) -> None:
    raise AssertionError(f"nothing fails here, {failures}")


class Servers:
    """Servers of a site in memory, as `SharedServers`."""

    def __init__(self) -> None:
        self.rows: dict[int, SlotRows] = {}
        self.slots: SlotMap | None = None
        self.facts: dict[str, str] = {}
        self._coordination = MemoryCoordination(MemoryEnsemble())

    def coordination(self) -> MemoryCoordination:
        return self._coordination

    async def journal(self, slot: int, report: Callable[[str], None]) -> MemoryJournal:
        return MemoryJournal(self.rows.setdefault(slot, SlotRows()))

    async def recorded_slots(self, report: Callable[[str], None]) -> SlotMap | None:
        return self.slots

    async def record_slots(
        self, before: SlotMap, after: SlotMap, report: Callable[[str], None]
    ) -> None:
        assert self.slots in (before, None)
        self.slots = after

    async def has_state(self, report: Callable[[str], None]) -> bool:
        return await self.owner(0) != ""

    async def write_fact(self, name: str, after: str, report: Callable[[str], None]) -> None:
        self.facts[name] = after

    async def owner(self, slot: int) -> str:
        ownership = await (await self.journal(slot, print)).ownership()
        return "" if ownership is None else ownership.owner.node

    async def take(self, slot: int) -> None:
        """Have a node take a slot. Raises SlotReserved."""
        copy = SlotCopy(MemoryStore((*TABLES, COPY)), TABLES)
        taking = SlotTaking(await self.journal(slot, print), "a", random.randbytes(16), retry)
        await taking.read_and_begin(await taking.raise_epoch(), copy)


class SharedSite:
    """Site whose states are in its cluster, and a folder on one machine."""

    def __init__(self, site: Site, former: SlotMap) -> None:
        self.site = site
        self.former = former
        self.servers = Servers()

    async def make(self) -> SharedSite:
        self.site.make(self.former)
        self.servers.slots = self.former
        accesses = [
            await move_access(cast("SharedServers", self.servers), slot, print)
            for slot in range(self.former.count)
        ]
        await move_in(self.site.folder, accesses, lambda keys: None)
        return self

    def reslotting(self, new: SlotMap) -> SharedReslotting:
        servers = cast("SharedServers", self.servers)
        return SharedReslotting(self.site.reslotting(new), servers, print)

    async def change(self, new: SlotMap) -> int:
        return await self.reslotting(new).run(lambda keys: None)

    async def dies(self, new: SlotMap, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have a change end at a crash point."""
        with dying_at(point, monkeypatch):
            await self.change(new)

    async def is_nobodys(self, count: int) -> None:
        """Check that no node can take any of so many slots, or that nobody knows of a slot."""
        for slot in range(count):
            if await self.servers.owner(slot):
                with pytest.raises(SlotReserved):
                    await self.servers.take(slot)
            else:
                assert self.servers.slots is not None
                assert slot >= self.servers.slots.count

    async def has(self, slots: SlotMap) -> None:
        """Check that the nodes may take these slots, each with what its exchanges had."""
        for slot in range(slots.count):
            assert await self.servers.owner(slot) == MOVED_IN
        assert self.servers.slots == slots
        accesses = [
            await move_access(cast("SharedServers", self.servers), slot, print)
            for slot in range(slots.count)
        ]
        await move_out(self.site.folder, accesses, lambda keys: None)
        for slot in range(slots.count):
            with self.site.kept(slot) as kept:
                for exchange in EXCHANGES:
                    is_here = slots.of(exchange) == slot
                    known = {Verdict.DUPLICATE if is_here else Verdict.NEW}
                    assert kept.verdicts(exchange) == known, (slot, exchange)


POINTS = [
    *("move.out", "move.arrived", "reslot.begun", "reslot.ended", "reslot.carried"),
    *("reslot.built", "reslot.placing", "reslot.recorded", "reslot.here", "reslot.shared"),
    *("move.piece", "move.in", "move.given"),
]


CUTS = [
    *((TWO, FOUR, point) for point in POINTS),
    *((FOUR, ONE_SLOT, point) for point in ("reslot.placing", "reslot.shared", "move.given")),
]


@pytest.mark.parametrize(("former", "new", "point"), CUTS)
async def test_a_change_that_was_cut_short_is_finished_and_no_slot_is_anybody_s_before(
    former: SlotMap, new: SlotMap, point: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await SharedSite(site, former).make()
    await shared.dies(new, point, monkeypatch)
    is_over = point == "move.given" and new.is_whole
    assert await shared.reslotting(new).is_under_way() != is_over
    if point not in ("move.out", "move.arrived", "move.given"):
        await shared.is_nobodys(max(former.count, new.count))
    await shared.change(new)
    assert not (site.folder / RESLOT).exists()
    await shared.has(new)


@pytest.mark.parametrize(
    ("point", "second"),
    [
        ("reslot.ended", TWO),
        ("reslot.placing", OTHER),
        ("reslot.here", TWO),
        ("reslot.here", OTHER),
    ],
)
async def test_nothing_else_is_done_before_a_change_that_was_cut_short(
    second: SlotMap, point: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await SharedSite(site, TWO).make()
    await shared.dies(FOUR, point, monkeypatch)
    with pytest.raises(ReslotRefused, match=r"a change to 4 slots .* was cut short"):
        await shared.change(second)
    await shared.is_nobodys(4)
    await shared.change(FOUR)
    await shared.has(FOUR)


async def test_states_that_have_only_moved_out_may_go_back_as_they_were(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await SharedSite(site, TWO).make()
    await shared.dies(FOUR, "reslot.begun", monkeypatch)
    (site.folder / RESLOT).unlink()
    await shared.change(TWO)
    await shared.has(TWO)


async def test_states_of_which_something_was_under_way_go_back(site: Site) -> None:
    site.make(TWO)
    with site.kept(1) as kept:
        kept.state.end(Commit())
    shared = SharedSite(site, TWO)
    shared.servers.slots = TWO
    accesses = [
        await move_access(cast("SharedServers", shared.servers), slot, print) for slot in range(2)
    ]
    await move_in(site.folder, accesses, lambda keys: None)
    with pytest.raises(ReslotRefused, match="slot 1 did not end quiesced"):
        await shared.change(FOUR)
    assert read_holds(site.folder) == Holds(links=frozenset({"a-b"}))
    await shared.has(TWO)


async def test_a_cluster_without_states_gets_no_record_of_slots(site: Site) -> None:
    shared = SharedSite(site, TWO)
    with pytest.raises(ReslotRefused, match="its cluster has no states yet"):
        await shared.change(FOUR)
    assert shared.servers.slots is None


async def test_states_in_another_machine_s_folder_are_changed_there(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await SharedSite(site, TWO).make()
    await shared.dies(FOUR, "reslot.begun", monkeypatch)
    folder, site.folder = site.folder, tmp_path / "elsewhere"
    with pytest.raises(MoveRefused, match="moved into another folder: run this there"):
        await shared.change(FOUR)
    site.folder = folder
    assert await shared.servers.owner(0) == MOVED_OUT
    await shared.change(FOUR)
    await shared.has(FOUR)


async def test_the_order_to_quiesce_is_not_found_again(site: Site) -> None:
    shared = await SharedSite(site, TWO).make()
    await shared.change(FOUR)
    assert '"quiescing": false' in shared.servers.facts[ORDERS]


@in_virtual_time
async def test_who_waits_for_the_nodes_end_waits_for_a_lost_connection_too() -> None:
    said: list[str] = []
    servers = Servers()
    shared = SharedReslotting(cast(Reslotting, None), cast("SharedServers", servers), said.append)
    servers.coordination().away = True
    asking = asyncio.create_task(shared.running())
    await let_pass(20)
    servers.coordination().away = False
    assert await asking == []
    assert said == ["ZooKeeper: no ensemble in memory"]
    servers.coordination().away = True
    with pytest.raises(CoordinationAway):
        await shared.running()
