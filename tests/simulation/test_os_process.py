"""A process that is frozen does nothing, and then all that it would have done."""

from __future__ import annotations

import asyncio

from simulation.os_process import OsProcess
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until

WITHIN_S = 60.0


class Ticking:
    """Counts seconds, by a timer that sets the next one."""

    def __init__(self) -> None:
        self.seconds = 0
        self._set()

    async def has(self, seconds: int) -> None:
        await until(lambda: self.seconds >= seconds, lambda: f"{self.seconds} seconds", WITHIN_S)

    def _set(self) -> None:
        asyncio.get_running_loop().call_later(1.0, self._tick)

    def _tick(self) -> None:
        self.seconds += 1
        self._set()


@in_virtual_time
async def test_nothing_of_a_frozen_process_runs_while_others_do() -> None:
    process = OsProcess()
    its, others = process.context.run(Ticking), Ticking()
    await its.has(2)
    process.freeze()
    await others.has(12)
    assert its.seconds == 2
    process.go_on()
    await its.has(3)
    assert (its.seconds, others.seconds) == (3, 12)  # the one timer that it had set, at once


@in_virtual_time
async def test_what_it_makes_belongs_to_it_and_runs_in_order() -> None:
    process, done = OsProcess(), list[int]()
    loop = asyncio.get_running_loop()

    async def begin() -> None:
        for number, delay_s in enumerate((3.0, 1.0, 2.0)):
            loop.call_later(delay_s, done.append, number)
        asyncio.create_task(_append(done, 9)).add_done_callback(lambda _: done.append(10))
        process.freeze()

    await loop.create_task(begin(), context=process.context)
    await let_pass(5.0)
    assert done == []
    process.go_on()
    await until(lambda: len(done) == 5, lambda: f"{done}", WITHIN_S)
    assert done == [9, 1, 2, 0, 10]


async def _append(done: list[int], number: int) -> None:
    done.append(number)


@in_virtual_time
async def test_a_timer_that_its_own_process_cancels_as_it_goes_on_does_not_fire() -> None:
    process, done = OsProcess(), list[str]()
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[None] = loop.create_future()
    has_asked = asyncio.Event()

    async def answered_in_time() -> None:
        timer = loop.call_later(2.0, done.append, "too late")
        has_asked.set()
        await answer
        timer.cancel()
        done.append("answered")

    task = loop.create_task(answered_in_time(), context=process.context)
    await has_asked.wait()
    process.freeze()
    answer.set_result(None)
    await let_pass(5.0)
    process.go_on()
    await task
    await let_pass(1.0)
    assert done == ["answered"]


@in_virtual_time
async def test_one_that_is_ended_by_force_lets_its_tasks_end() -> None:
    process, has_begun = OsProcess(), asyncio.Event()

    async def wait_for_ever() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    task = asyncio.get_running_loop().create_task(wait_for_ever(), context=process.context)
    await has_begun.wait()
    process.freeze()
    task.cancel()
    await let_pass(5.0)
    assert not task.done()
    process.go_on()
    await asyncio.wait({task})
    assert task.cancelled()
