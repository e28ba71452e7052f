"""A question that many ask at once."""

from __future__ import annotations

import asyncio

import pytest

from relay.log.scans.scan import SharedAnswer
from relay.log.site_log import LogClosed
from tests.virtual_time import in_virtual_time, let_pass


class Clerk:
    """Answers after a second with how often it was asked before; or with an error."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None

    async def answer(self) -> int:
        number = self.asked
        self.asked += 1
        await let_pass(1)
        if self.error is not None:
            raise self.error
        return number


@in_virtual_time
async def test_a_question_is_put_once_for_all_who_ask_at_once() -> None:
    clerk = Clerk()
    question = SharedAnswer(clerk.answer)
    assert await asyncio.gather(*(question.get() for _ in range(10))) == [0] * 10
    assert await question.get() == 1
    assert clerk.asked == 2


@in_virtual_time
async def test_nobody_is_told_what_was_found_before_he_asked() -> None:
    clerk = Clerk()
    question = SharedAnswer(clerk.answer)
    first = asyncio.ensure_future(question.get())
    await let_pass(0.5)
    later = [asyncio.ensure_future(question.get()) for _ in range(10)]
    assert await first == 0
    assert await asyncio.gather(*later) == [1] * 10
    assert clerk.asked == 2


@in_virtual_time
async def test_one_who_asks_no_more_takes_no_answer_from_others() -> None:
    clerk = Clerk()
    question = SharedAnswer(clerk.answer)
    one, other = (asyncio.ensure_future(question.get()) for _ in range(2))
    await let_pass(0.5)
    one.cancel()
    assert await other == 0
    assert one.cancelled()


@in_virtual_time
async def test_a_failure_is_told_to_all_who_asked_and_the_next_asks_again() -> None:
    clerk = Clerk()
    question = SharedAnswer(clerk.answer)
    clerk.error = LogClosed("gone")
    outcomes = await asyncio.gather(*(question.get() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [LogClosed] * 3
    clerk.error = ValueError("a fault of ours")
    with pytest.raises(ValueError, match="ours"):
        await question.get()
    clerk.error = None
    assert await question.get() == 2
