"""Callbacks that count as failed, on both of the event loops that nodes run on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from dedup.journal.journal import SlotFenced
from relay.node.watch import CallbackWatch, LoopCallbackFailed
from relay.waiters import Waiters
from tests.waiting import until

WITHIN_S = 10.0
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    given: Run = request.param
    return given


def _fail_in_ours() -> None:
    waiters = Waiters()
    waiters.add("no future")  # type: ignore[arg-type]
    waiters.wake()


def _fail_elsewhere() -> None:
    str.partition("nothing", "")


@pytest.mark.parametrize("done", [False, True], ids=["of a timer", "of a future"])
def test_a_callback_of_ours_that_fails_is_told_with_its_cause(run: Run, done: bool) -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        watch = CallbackWatch(loop)
        if done:
            future = loop.create_future()
            future.add_done_callback(lambda _: _fail_in_ours())
            future.set_result(None)
        else:
            loop.call_later(0.001, _fail_in_ours)
        with pytest.raises(
            LoopCallbackFailed, match="'str' object has no attribute 'done'"
        ) as failed:
            await asyncio.wait_for(watch.run(), WITHIN_S)
        assert isinstance(failed.value.__cause__, AttributeError)

    run(live())


def test_the_loss_of_a_node_s_state_ends_no_process(run: Run) -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        watch = CallbackWatch(loop)

        def lose() -> None:
            raise SlotFenced(3, None)

        loop.call_soon(lose)
        loop.call_soon(_fail_in_ours)
        with pytest.raises(LoopCallbackFailed, match="no attribute 'done'"):
            await asyncio.wait_for(watch.run(), WITHIN_S)

    run(live())


def test_the_first_failure_is_told_and_each_is_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def live() -> None:
        loop = asyncio.get_running_loop()
        watch = CallbackWatch(loop)
        loop.call_soon(_fail_in_ours)
        loop.call_soon(_fail_in_ours)
        await until(lambda: len(caplog.records) == 2, "logged", WITHIN_S)
        with pytest.raises(LoopCallbackFailed):
            await asyncio.wait_for(watch.run(), WITHIN_S)

    run(live())


def test_what_fails_elsewhere_is_only_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def fail_in_ours() -> None:
        _fail_in_ours()

    async def live() -> None:
        loop = asyncio.get_running_loop()
        watching = asyncio.create_task(CallbackWatch(loop).run())
        loop.call_soon(_fail_elsewhere)
        nobodys = asyncio.create_task(fail_in_ours())
        await asyncio.wait({nobodys})
        del nobodys  # and with it, unasked, what it raised
        gc.collect()
        loop.call_exception_handler({"message": "a connection was lost"})
        await until(lambda: len(caplog.records) == 3, lambda: caplog.text, WITHIN_S)
        assert not watching.done()
        watching.cancel()

    run(live())
