"""A process that is frozen does nothing, and then all that it would have done."""

from __future__ import annotations

import asyncio

from simulation.os_process import OsProcess
from tests.virtual_time import in_virtual_time


async def _count(done: list[str], who: str) -> None:
    while True:
        await asyncio.sleep(1.0)
        done.append(who)


@in_virtual_time
async def test_nothing_of_a_frozen_process_runs_while_others_do() -> None:
    process, done = OsProcess(), list[str]()
    loop = asyncio.get_running_loop()
    tasks = [
        loop.create_task(_count(done, "frozen"), context=process.context()),
        loop.create_task(_count(done, "other")),
    ]
    await asyncio.sleep(2.5)
    process.freeze()
    await asyncio.sleep(10.0)
    assert (done.count("frozen"), done.count("other")) == (2, 12)
    process.go_on()
    await asyncio.sleep(0.9)
    assert done.count("frozen") == 3  # the one timer that it had set
    for task in tasks:
        task.cancel()


@in_virtual_time
async def test_what_it_makes_belongs_to_it_and_runs_in_order() -> None:
    process, done = OsProcess(), list[int]()
    loop = asyncio.get_running_loop()

    async def begin() -> None:
        for number, delay_s in enumerate((3.0, 1.0, 2.0)):
            loop.call_later(delay_s, done.append, number)
        asyncio.create_task(_append(done, 9)).add_done_callback(lambda _: done.append(10))
        process.freeze()

    await loop.create_task(begin(), context=process.context())
    await asyncio.sleep(5.0)
    assert done == []
    process.go_on()
    await asyncio.sleep(0.1)
    assert done == [9, 1, 2, 0, 10]


async def _append(done: list[int], number: int) -> None:
    done.append(number)


@in_virtual_time
async def test_a_timer_that_its_own_process_cancels_as_it_goes_on_does_not_fire() -> None:
    process, done = OsProcess(), list[str]()
    loop = asyncio.get_running_loop()

    async def answered_in_time(answer: asyncio.Future[None]) -> None:
        timer = loop.call_later(2.0, done.append, "too late")
        await answer
        timer.cancel()
        done.append("answered")

    answer: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(answered_in_time(answer), context=process.context())
    await asyncio.sleep(0.0)
    process.freeze()
    answer.set_result(None)
    await asyncio.sleep(5.0)
    process.go_on()
    await task
    await asyncio.sleep(1.0)
    assert done == ["answered"]


@in_virtual_time
async def test_one_that_is_ended_by_force_lets_its_tasks_end() -> None:
    process = OsProcess()
    loop = asyncio.get_running_loop()
    task = loop.create_task(_count([], "it"), context=process.context())
    await asyncio.sleep(0.0)
    process.freeze()
    await asyncio.sleep(5.0)
    task.cancel()
    await asyncio.sleep(0.0)
    assert not task.done()
    process.go_on()
    await asyncio.wait({task})
    assert task.cancelled()
