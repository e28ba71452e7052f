"""What a node begins with: its folder, held against the mark that its broker remembers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from rstream import exceptions

from dedup.journal.journal import SlotFenced
from dedup.memory_store import MemoryStore
from relay.batches.batch import Place
from relay.delivery.context import POSITION
from relay.log.rabbit.stream_connection import NoOffset, log_errors
from relay.log.reader import LogReader
from relay.log.site_log import LogClosed, LogRefused, SiteLogError
from relay.log.writer import LogWriter
from relay.node.start import MARKED, DelivererMark, NodeStopped, begin_with, reached_offset
from relay.state.node_state import TABLES, Commit, Loaded, NodeState
from tests.log_world import (
    LogWorld,
    append_and_check,
    ending_run,
    in_one_life,
    take_batches,
)
from tests.virtual_time import in_virtual_time


class AnsweringLog:
    """As much of a writer and its log as is asked for the mark: errors first, then the mark."""

    def __init__(self, errors: Sequence[SiteLogError], mark: int | None) -> None:
        self._errors = list(errors)
        self.mark = mark

    async def connected(self) -> AnsweringLog:
        return self

    async def load_mark(self) -> int | None:
        if self._errors:
            raise self._errors.pop(0)
        return self.mark

    async def store_mark(self, offset: int) -> None:
        self.mark = offset


async def is_ours() -> None:
    return


async def begin(
    store: MemoryStore, log: AnsweringLog, confirm: Callable[[], Awaitable[None]] = is_ours
) -> list[str]:
    """What was said meanwhile."""
    said: list[str] = []
    state = NodeState(store)
    writer = cast(LogWriter, log)
    await begin_with(state, state.load(), writer, "the state", said.append, bytes, confirm)
    return said


def is_new(store: MemoryStore) -> bool:
    """Whether no node has begun with it."""
    state = NodeState(store)
    state.load()
    return state.is_new


@pytest.mark.parametrize(
    "error", [LogRefused("AccessRefused"), LogClosed("not available")], ids=["refused", "away"]
)
@in_virtual_time
async def test_an_error_is_not_taken_for_no_mark(error: SiteLogError) -> None:
    store = MemoryStore(TABLES)
    with pytest.raises(NodeStopped, match="has delivered messages before"):
        await begin(store, AnsweringLog([error] * 3, mark=7))
    assert is_new(store)


@pytest.mark.parametrize("has_begun", [False, True])
@in_virtual_time
async def test_a_state_that_another_node_has_gone_on_with_is_not_taken_for_an_old_one(
    has_begun: bool,
) -> None:
    store, log = MemoryStore(TABLES), AnsweringLog([], mark=None)
    if has_begun:
        await begin(store, log)
    # While this node was frozen, another one delivered.
    log.mark = 1000

    async def is_fenced() -> None:
        raise SlotFenced(3, None)

    with pytest.raises(SlotFenced):
        await begin(store, log, is_fenced)
    with pytest.raises(NodeStopped):
        await begin(store, log)


@in_virtual_time
async def test_without_a_mark_a_site_begins_and_leaves_one() -> None:
    store, log = MemoryStore(TABLES), AnsweringLog([LogClosed("not available")], mark=None)
    said = await begin(store, log)
    assert "not available" in said[0]
    assert not is_new(store)
    assert log.mark is not None


ANSWERS: list[type[exceptions.ServerError]] = sorted(
    {
        one
        for one in vars(exceptions).values()
        if isinstance(one, type) and issubclass(one, exceptions.ServerError)
    },
    key=str,
)


@pytest.mark.parametrize("error", ANSWERS)
def test_only_the_brokers_own_no_offset_is_none(error: type[exceptions.ServerError]) -> None:
    with pytest.raises(SiteLogError) as told, log_errors("log"):
        raise error
    assert isinstance(told.value, NoOffset) is (error is exceptions.OffsetNotFound)


class Deliverer:
    """Part of a deliverer that leaves marks, over several runs of its node."""

    def __init__(self, writer: LogWriter) -> None:
        self.position: Place | None = None
        self._store = MemoryStore(TABLES)
        self._writer = writer
        self.begin()

    def begin(self) -> Loaded:
        """Begin the next run; return the state that it loads."""
        self._state = NodeState(self._store)
        loaded = self._state.load()
        marked = loaded.positions.get(MARKED)
        self._mark = DelivererMark(self._state, self._writer, lambda: self.position, marked)
        return loaded

    def get_to(self, place: Place) -> None:
        """Settle everything up to the place."""
        self.position = self._writer.safe_position(place)
        commit = Commit()
        commit.position(POSITION, self.position)
        self._state.write(commit)

    async def mark(self) -> None:
        await self._mark.store(within_s=1.0)

    @property
    def reached(self) -> int | None:
        """Offset that a run beginning now would have reached, or None."""
        return reached_offset(self.begin(), self._state, self._writer)


async def positioned(writer: LogWriter) -> tuple[Deliverer, LogReader]:
    """Return a deliverer whose position is at the tenth batch, and its reader."""
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
