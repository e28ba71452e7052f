"""A flow's next chunk goes to the broker while the former is being confirmed, and settles after."""

from __future__ import annotations

import asyncio

import pytest

from relay.delivery import flow_queue
from relay.delivery.chunk_builder import CHUNK_BYTES
from relay.delivery.chunk_order import CHUNKS_AT_MOST
from relay.delivery.memory_exchange import MemoryBroker, MemoryExchange
from relay.ledger.rows import OUTCOME_MASK, Outcome
from relay.state.flow_state import ANNOUNCED_AT_MOST, ANNOUNCED_BY_NODES
from tests.relay.deliverer_world import Life, World, entry
from tests.virtual_time import in_virtual_time, let_pass


class HeldAnswers:
    """A world whose broker answers each publish when the test lets it."""

    def __init__(self) -> None:
        self.world = World()
        self.world.make_exchange = self._make
        self.waiting: list[asyncio.Future[None]] = []

    def _make(self, broker: MemoryBroker) -> MemoryExchange:
        made = MemoryExchange(broker, self._before_answer)
        made._is_proven = True  # so that the second publication may go ahead of the first's answers
        return made

    def _before_answer(self, _: str) -> asyncio.Future[None]:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    async def log_each(self, life: Life, *numbers: int) -> None:
        """Log a batch for each number; return once the last is with the broker."""
        for number in numbers:
            published = len(self.waiting)
            await life.log(self.world.batch([entry(number)]))
            await life.until(lambda published=published: len(self.waiting) > published)

    def answer_all_from_now_on(self) -> None:
        self.world.make_exchange = MemoryExchange
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_result(None)


def bodies(*numbers: int) -> list[str]:
    return [f"body {number}" for number in numbers]


@in_virtual_time
async def test_no_more_chunks_than_allowed_are_ahead_of_their_answers() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, *range(CHUNKS_AT_MOST))
        await life.log(held.world.batch([entry(n) for n in range(CHUNKS_AT_MOST, 100)]))
        await life.until(lambda: life.context.settlement.reader.number == CHUNKS_AT_MOST + 1)
        assert len(held.world.delivered()) == CHUNKS_AT_MOST
        held.waiting[0].set_result(None)
        await life.until(lambda: len(held.world.delivered()) == 100)
        held.answer_all_from_now_on()
    assert held.world.delivered() == bodies(*range(100))


@pytest.mark.parametrize("bound", [ANNOUNCED_AT_MOST, ANNOUNCED_BY_NODES])
@in_virtual_time
async def test_no_more_messages_than_a_crash_may_flag_are_announced(bound: int) -> None:
    held = HeldAnswers()
    held.world.announced_at_most = bound
    async with held.world.running() as life:
        most = 0
        for first in range(0, 4 * bound, 100):
            await life.log(held.world.batch([entry(n) for n in range(first, first + 100)]))
        for _ in range(1000):
            flows = life.context.flows.values()
            most = max(most, sum(state.announced for state in flows))
            if held.waiting:
                held.waiting.pop(0).set_result(None)
            if len(held.world.delivered()) >= 4 * bound and not held.waiting:
                break
            await let_pass(0.001)
        assert bound // 2 < most <= bound
        held.answer_all_from_now_on()


@in_virtual_time
async def test_what_is_confirmed_first_is_committed_after_what_was_sent_first() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0, 1)
        held.waiting[1].set_result(None)
        await let_pass(0.01)
        assert life.counters.delivered == 0
        assert not held.world.rows()
        held.waiting[0].set_result(None)
        await life.until(lambda: life.counters.delivered == 2)
    assert [row.sequence for row in held.world.rows()] == [0, 1]


@in_virtual_time
async def test_a_message_that_is_refused_is_tried_again_before_later_ones_are_committed() -> None:
    held = HeldAnswers()
    held.world.broker.capacity["orders.queue"] = 0
    async with held.world.running() as life:
        await held.log_each(life, 0)
        del held.world.broker.capacity["orders.queue"]
        await held.log_each(life, 1)
        held.answer_all_from_now_on()
        held.world.exchanges[-1]._before_answer = None
        await life.until(lambda: life.counters.delivered == 2)
    assert held.world.delivered() == bodies(1, 0)  # 1 was on its way already
    assert held.world.flags() == [False, True]
    assert [row.sequence for row in held.world.rows()] == [0, 1]


@in_virtual_time
async def test_behind_a_refusal_nothing_more_is_sent_until_it_is_settled() -> None:
    held = HeldAnswers()
    held.world.broker.capacity["orders.queue"] = 0
    async with held.world.running() as life:
        await held.log_each(life, 0)
        held.waiting[0].set_result(None)
        await life.until(lambda: bool(life.deliverer.standing))
        await life.log(*(held.world.batch([entry(n)]) for n in range(1, 5)))
        del held.world.broker.capacity["orders.queue"]
        held.world.exchanges[-1]._before_answer = None
        await life.until(lambda: life.counters.delivered == 5)
    assert held.world.delivered() == bodies(0, 1, 2, 3, 4)


@in_virtual_time
async def test_a_lost_connection_has_all_chunks_under_way_sent_again_in_order() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0, 1)
        held.world.make_exchange = MemoryExchange
        held.world.exchanges[-1].break_off("test")
        await life.until(lambda: life.counters.delivered == 2)
    assert held.world.delivered() == bodies(0, 1, 0, 1)
    assert held.world.flags() == [False, False, True, True]


@in_virtual_time
async def test_a_repetition_waits_for_what_it_repeats() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0)
        await life.log(held.world.batch([entry(0), entry(1)]))
        await let_pass(0.01)
        assert held.world.delivered() == bodies(0)
        held.answer_all_from_now_on()
        held.world.exchanges[-1]._before_answer = None
        await life.until(lambda: life.counters.delivered == 2)
    assert held.world.delivered() == bodies(0, 1)
    outcomes = [o & OUTCOME_MASK for row in held.world.rows() for o in row.outcomes]
    assert outcomes == [Outcome.DELIVERED, Outcome.DUPLICATE, Outcome.DELIVERED]


@in_virtual_time
async def test_a_node_that_stops_commits_nothing_past_what_was_never_confirmed() -> None:
    held = HeldAnswers()
    held.world.broker.capacity["orders.queue"] = 0
    async with held.world.running() as life:
        await held.log_each(life, 0)
        del held.world.broker.capacity["orders.queue"]
        await held.log_each(life, 1)
        # The first is refused for good, the second confirmed, and then the node stops.
        held.world.broker.capacity["orders.queue"] = 1
        held.waiting[1].set_result(None)
        held.waiting[0].set_result(None)
        await life.until(lambda: bool(life.deliverer.standing))
        life.stopping.set()
        await life.task
        assert life.counters.delivered == 0
    del held.world.broker.capacity["orders.queue"]
    held.world.make_exchange = MemoryExchange
    async with held.world.running() as life:
        await life.until(lambda: life.counters.delivered == 2)
    assert held.world.delivered() == bodies(1, 0)
    assert [row.sequence for row in held.world.rows()] == [0, 1]


@in_virtual_time
async def test_a_small_chunk_waits_for_the_formers_answers_and_gathers_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flow_queue, "PLENTY_ENTRIES", 100)
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0)
        for first in range(1, 91, 10):
            await life.log(held.world.batch([entry(n) for n in range(first, first + 10)]))
        await let_pass(0.01)
        assert held.world.delivered() == bodies(0)
        await life.log(held.world.batch([entry(n) for n in range(91, 101)]))
        await life.until(lambda: len(held.world.delivered()) == 101)
        assert len(held.waiting) == 2
        held.answer_all_from_now_on()


@in_virtual_time
async def test_behind_a_big_message_nothing_goes_ahead() -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await life.log(held.world.batch([entry(0, body=bytes(CHUNK_BYTES + 1))]))
        await life.until(lambda: len(held.waiting) == 1)
        await life.log(held.world.batch([entry(1)]))
        await let_pass(0.01)
        assert len(held.world.delivered()) == 1
        held.waiting[0].set_result(None)
        await life.until(lambda: len(held.world.delivered()) == 2)
        held.answer_all_from_now_on()


@pytest.mark.parametrize("stops", [False, True], ids=["nothing more comes", "the node stops"])
@in_virtual_time
async def test_an_error_in_a_chunk_ends_the_deliverer_though(stops: bool) -> None:
    held = HeldAnswers()
    async with held.world.running() as life:
        await held.log_each(life, 0)

        def fails(_: object) -> None:
            raise OSError("the disk is full")

        life.state.write = fails  # type: ignore[method-assign]
        if stops:
            life.stopping.set()
        await let_pass(0.1)
        held.waiting[0].set_result(None)
        with pytest.raises(OSError, match="disk is full"):
            await asyncio.wait_for(life.task, 5)
