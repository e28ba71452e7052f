"""The mark that a deliverer leaves in its broker: never past what the log has kept."""

from __future__ import annotations

from dedup.memory_store import MemoryStore
from relay.batches.batch import Place
from relay.delivery.context import POSITION
from relay.log.reader import LogReader
from relay.log.site_log import LogClosed
from relay.node.deliverer_mark import MARKED, DelivererMark, reached
from relay.state.node_state import TABLES, Commit, Loaded, NodeState
from tests.log_world import (
    LogWorld,
    LogWriter,
    append_and_check,
    ending_run,
    in_one_life,
    take_batches,
)


class Deliverer:
    """As much of one as leaves marks, over runs of its node."""

    def __init__(self, writer: LogWriter) -> None:
        self.position: Place | None = None
        self._store = MemoryStore(TABLES)
        self._writer = writer
        self.begin()

    def begin(self) -> Loaded:
        """What the next run loads."""
        self._state = NodeState(self._store)
        loaded = self._state.load()
        marked = loaded.positions.get(MARKED)
        self._mark = DelivererMark(self._state, self._writer, lambda: self.position, marked)
        return loaded

    def get_to(self, place: Place) -> None:
        """All up to there is settled."""
        self.position = self._writer.safe_position(place)
        commit = Commit()
        commit.position(POSITION, self.position)
        self._state.write(commit)

    async def mark(self) -> None:
        await self._mark.store(within_s=1.0)

    @property
    def reached(self) -> int | None:
        """As a run that begins now sees it."""
        return reached(self.begin(), self._state, self._writer)


async def positioned(writer: LogWriter) -> tuple[Deliverer, LogReader]:
    """With the position at the tenth batch."""
    await append_and_check(writer, *range(10))
    reader = writer.reader(None, name="deliverer")
    deliverer = Deliverer(writer)
    deliverer.get_to((await take_batches(reader, 10))[-1].place)
    return deliverer, reader


@in_one_life()
async def test_it_is_stored_at_the_position(world: LogWorld, writer: LogWriter) -> None:
    deliverer, _ = await positioned(writer)
    await deliverer.mark()
    assert world.stream.marks == {"deliverer": 9}
    assert deliverer.reached == 9


@in_one_life()
async def test_it_is_not_stored_where_the_log_has_lost_the_place_meanwhile(
    world: LogWorld, writer: LogWriter
) -> None:
    deliverer, _ = await positioned(writer)
    async with ending_run(writer):
        world.stream.lose_tail(4)
    await deliverer.mark()
    assert world.stream.marks == {}


@in_one_life()
async def test_a_position_that_goes_back_behind_it_makes_no_older_copy_of_a_state(
    world: LogWorld, writer: LogWriter
) -> None:
    deliverer, _ = await positioned(writer)
    async with ending_run(writer):
        world.stream.lose_tail(4)
    await append_and_check(writer, 20)
    reader = writer.reader(None, name="deliverer")
    deliverer.get_to((await take_batches(reader, 7))[-1].place)
    await deliverer.mark()
    assert world.stream.marks == {"deliverer": 6}
    # One of those that were lost comes again: nobody can say which of the two a place means.
    await append_and_check(writer, 9)
    deliverer.get_to((await take_batches(reader, 1))[-1].place)
    assert deliverer.position is not None
    assert deliverer.position.offset == 5
    assert deliverer.reached == 6
    await deliverer.mark()
    assert world.stream.marks == {"deliverer": 6}


@in_one_life()
async def test_what_the_broker_may_have_is_not_taken_back_though_it_did_not_answer(
    world: LogWorld, writer: LogWriter
) -> None:
    await append_and_check(writer, *range(10))
    places = [one.place for one in await take_batches(writer.reader(None, name="deliverer"), 10)]
    deliverer, store_mark = Deliverer(writer), world.stream.store_mark

    def store_and_break(name: str, offset: int) -> None:
        store_mark(name, offset)
        raise LogClosed("before the answer")

    setattr(world.stream, "store_mark", store_and_break)  # noqa: B010
    deliverer.get_to(places[9])
    await deliverer.mark()
    setattr(world.stream, "store_mark", store_mark)  # noqa: B010
    deliverer.get_to(places[7])
    await deliverer.mark()
    assert deliverer.reached == 9


@in_one_life()
async def test_a_log_that_is_made_anew_has_marks_of_its_own(
    world: LogWorld, writer: LogWriter
) -> None:
    deliverer, reader = await positioned(writer)
    await deliverer.mark()
    async with ending_run(writer):
        world.stream.create()
    await append_and_check(writer, 20, 21)
    assert deliverer.reached == 9  # its position, which the deliverer has not looked at since
    reader = writer.reader(None, name="deliverer")
    deliverer.get_to((await take_batches(reader, 2))[-1].place)
    assert deliverer.reached == 1
    await deliverer.mark()
    assert world.stream.marks["deliverer"] == 1
