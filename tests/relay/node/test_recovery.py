"""A state rebuilt from the log and the broker's mark."""

from __future__ import annotations

import random

from dedup.memory_store import MemoryStore
from relay.content.content_log import ContentLog
from relay.content.contents import Contents, StoringRule
from relay.content.memory_content import KeptContent, MemoryContent
from relay.delivery.context import POSITION
from relay.log.memory_log import MemoryLog, MemoryStream
from relay.node.recovery import Recovered, rebuild
from relay.node.start import recovered_past
from relay.state.node_state import TABLES, NodeState, StateVerdict, judge_state
from tests.relay.deliverer_world import Life, World, entry, in_pieces
from tests.relay.delivery.test_repaired import nothing, repair


async def recovered(world: World, mark: int | None) -> NodeState:
    """The state lost; rebuilt; the node not yet started."""
    await found_by_recovery(world, mark)
    return NodeState(world.store)


async def found_by_recovery(world: World, mark: int | None) -> Recovered:
    world.store = MemoryStore(TABLES)
    life = Life(world)
    await life.start(deliver=False)
    found = await rebuild(life.context, mark)
    await life.stop()
    return found


class StreamWithContent(MemoryStream):
    """A log of which the content of large messages is in a store."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = KeptContent(lambda: 0.0)
        self._contents = Contents(
            MemoryContent(self.kept), lambda: 0.5, StoringRule(1 << 20, 3600.0)
        )

    async def open(self, *, mark_name: str = "deliverer") -> MemoryLog:
        log = await super().open(mark_name=mark_name)
        return ContentLog(log, self._contents)  # type: ignore[return-value]


def large(number: int) -> bytes:
    """A body of which each third goes into the content store."""
    return random.Random(number).randbytes(30_000).hex().encode()


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


async def test_a_message_kept_by_the_content_store_is_judged_as_if_it_stood_in_the_log() -> None:
    stream = StreamWithContent()
    world = World(stream=stream)
    async with world.running() as life:
        await life.settled(await life.log(*in_pieces(world, entry(1, large(1)))))
        mark = world.stream.records[-1].offset
        await life.settled(await life.log(*in_pieces(world, entry(2, large(2)))))
    assert stream.kept.writes == 6
    found = await found_by_recovery(world, mark)
    assert (found.settled_messages, found.doubtful_messages, found.gone) == (1, 1, set())
    async with world.running() as life:
        again = in_pieces(world, entry(1, large(1)), origin="sydney")
        await life.settled(await life.log(*again))
    bodies = [large(1), large(2), large(2)]
    assert world.delivered() == [body.decode() for body in bodies], "not the first once more"
    assert world.flags() == [False, False, True]


async def test_of_contents_that_are_gone_the_settled_stay_so_and_the_doubtful_are_gaps() -> None:
    stream = StreamWithContent()
    world = World(stream=stream)
    async with world.running() as life:
        await life.log(world.batch([entry(0)]))
        await life.settled(await life.log(*in_pieces(world, entry(1, large(1)))))
        middle = len(stream.kept.chunks) - 2
        await life.log(world.batch([entry(2)]))
        mark = stream.records[-1].offset
        doubtful = in_pieces(world, entry(3, large(3)))
        prices = world.batch([entry(4)], exchange="prices")
        await life.settled(await life.log(*doubtful, prices))
    gone = list(stream.kept.chunks)
    for content_id in (gone[middle], *gone[3:]):
        del stream.kept.chunks[content_id]
    found = await found_by_recovery(world, mark)
    assert (found.settled_messages, found.doubtful_messages, len(found.gone)) == (3, 2, 1)
    before = world.delivered()
    async with world.running() as life:
        await life.until(lambda: "body 4" in world.delivered("prices")[1:])
        await life.until(lambda: any("gap" in why for why in life.deliverer.standing.values()))
        assert any("is gone" in why for why in life.deliverer.standing.values())
    assert world.delivered() == before
