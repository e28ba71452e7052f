"""A state rebuilt from the log and the broker's mark."""

from __future__ import annotations

from dedup.memory_store import MemoryStore
from relay.delivery.context import POSITION
from relay.node.recovery import rebuild
from relay.node.start import recovered_past
from relay.state.node_state import TABLES, NodeState, StateVerdict, judge_state
from tests.relay.deliverer_world import Life, World, entry
from tests.relay.delivery.test_repaired import nothing, repair


async def recovered(world: World, mark: int | None) -> NodeState:
    """The state lost; rebuilt; the node not yet started."""
    world.store = MemoryStore(TABLES)
    life = Life(world)
    await life.start(deliver=False)
    await rebuild(life.context, mark)
    await life.stop()
    return NodeState(world.store)


async def test_what_stands_before_the_mark_is_not_delivered_again_and_the_rest_is_flagged() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(*(world.batch([entry(n)]) for n in range(6))))
    state = await recovered(world, world.stream.records[3].offset)
    position = state.load().positions[POSITION]
    assert position.name.sequence == 3
    async with world.running() as life:
        await life.settled(await life.log(world.batch([entry("new")])))
    assert world.delivered()[6:] == ["body 4", "body 5", "body new"]
    assert world.flags()[6:] == [True, True, False]


async def test_a_state_rebuilt_behind_a_gap_is_not_taken_for_an_older_copy() -> None:
    world = World()
    async with world.running() as life:
        await life.settled(await life.log(*(world.batch([entry(n)]) for n in range(6))))
    mark = world.stream.records[2].offset
    world.stream.truncate_head(world.stream.records[4].offset)
    state = await recovered(world, mark)
    assert POSITION not in state.load().positions
    assert recovered_past(state) == mark
    assert judge_state(True, recovered_past(state), mark) is StateVerdict.OK
    assert judge_state(True, recovered_past(state), mark + 1) is StateVerdict.OLDER_THAN_MARK


async def test_what_a_repair_brought_is_not_repaired_again_by_a_state_that_was_made_anew() -> None:
    world = World()
    async with world.running() as life:
        life.context.delivered_before = nothing
        await life.settled(await life.log(world.batch([entry(1)])))
        for number in (1, 2):  # the ledger lacked the first one
            await life.settled(await life.log(repair(world, [entry(number)])))
    assert world.delivered() == ["body 1", "body 1", "body 2"]
    await recovered(world, world.stream.records[-1].offset)
    async with world.running() as life:
        life.context.delivered_before = nothing  # the rows are lost with the state
        again = repair(world, [entry(1), entry(2)], origin="lima")
        await life.settled(await life.log(again))
    assert world.delivered() == ["body 1", "body 1", "body 2"]
