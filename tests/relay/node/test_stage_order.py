"""The order in which a node's stages start and end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from dedup.journal.journal import JournalFull, SlotFenced
from dedup.store import StoreFailed
from relay.node.stage_order import (
    STAGES_WITHIN_S,
    STOP_WITHIN_S,
    EndedBadly,
    StageTasks,
    loss_of_state,
)
from relay.node.stages import Stages
from tests.virtual_time import in_virtual_time, let_pass

FOR_EVER = 1e6


class Noted:
    """Stages that note what is done with them. As packer, context, deliverer, links and
    housekeeping it is one object: each asks for methods of its own.
    """

    def __init__(self) -> None:
        self.done: list[str] = []
        self.has_locked = asyncio.Event()
        self.has_decided = asyncio.Event()
        self.stopping = asyncio.Event()
        self.packer_takes_s = self.ledger_takes_s = 0.1
        self.packer = self.deliverer = self.context = self.links = self.housekeeping = self
        self.mark = self
        self.group = NotedGroup(self)

    def run(self) -> Coroutine[Any, Any, None]:
        """The packer's, and the housekeeping's: the first call is the packer's."""
        return self._goes_on("housekeeping") if "packer" in self.done else self._pack()

    async def _pack(self) -> None:
        self.done.append("packer")
        await self.stopping.wait()
        await asyncio.sleep(self.packer_takes_s)
        self.done.append("packer has ended")

    async def locked(self) -> None:
        await self.has_locked.wait()

    async def keep_connected(self) -> None:
        await self._goes_on("exchange")

    async def decided(self) -> None:
        await self.has_decided.wait()

    def stop(self) -> None:
        self.done.append("stop")

    async def deliver(self) -> None:
        self.done.append("deliverer")
        await self.stopping.wait()
        self.done.append("deliverer has ended")

    def run_receivers(self) -> Coroutine[Any, Any, None]:
        return self._goes_on("in")

    def run_senders(self) -> Coroutine[Any, Any, None]:
        return self._goes_on("out")

    async def store(self, within_s: float) -> None:
        self.done.append("mark")

    async def close_books(self, within_s: float) -> None:
        await asyncio.sleep(self.ledger_takes_s)
        self.done.append("ledger")

    def beside(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"gauge": self._goes_on("gauge")}

    async def _goes_on(self, name: str) -> None:
        self.done.append(name)
        try:
            await asyncio.sleep(FOR_EVER)
        finally:
            self.done.append(f"{name} has ended")


class NotedGroup:
    """The multicast group of stages that note what is done with them."""

    def __init__(self, stages: Noted) -> None:
        self._stages = stages

    def run(self) -> Coroutine[Any, Any, None]:
        return self._stages._goes_on("group")


class Run:
    """One run, whose log ends when it is told to."""

    def __init__(self) -> None:
        self.stages = Noted()
        self.ending = asyncio.Event()
        self.reached: list[str] = []
        self.is_over = True
        self.tasks = StageTasks("tokyo", self.ending)
        self.log_ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tasks.begin("log", self._log())

    async def _log(self) -> None:
        await self.log_ends

    def begin(self) -> asyncio.Task[None]:
        return asyncio.create_task(
            self.tasks.run(
                cast(Stages, self.stages),
                self.stages.beside,
                self.reached.append,
                lambda: self.is_over,
            )
        )

    async def until_idle(self) -> None:
        await let_pass(1)  # whatever can begin has begun


@in_virtual_time
async def test_whoever_reads_the_log_begins_when_the_packer_has_decided() -> None:
    run = Run()
    running = run.begin()
    await run.until_idle()
    assert run.stages.done == ["packer", "in"]
    run.stages.has_decided.set()
    await run.until_idle()
    assert run.stages.done[2:] == ["deliverer", "out", "group", "housekeeping", "gauge"]
    assert run.reached == ["running"]
    run.ending.set()
    await running


@in_virtual_time
async def test_the_deliverer_connects_while_the_packer_s_lock_settles() -> None:
    run = Run()
    running = run.begin()
    await run.until_idle()
    assert "exchange" not in run.stages.done
    run.stages.has_locked.set()
    await run.until_idle()
    assert run.stages.done == ["packer", "in", "exchange"]
    run.ending.set()
    await running
    assert "exchange has ended" in run.stages.done


@in_virtual_time
async def test_the_end_is_packer_and_deliverer_then_links_then_mark_and_ledger() -> None:
    run = Run()
    running = run.begin()
    run.stages.has_decided.set()
    await run.until_idle()
    del run.stages.done[:]
    run.ending.set()
    await running
    assert run.stages.done == [
        "stop",
        "deliverer has ended",
        "packer has ended",
        "in has ended",
        "out has ended",
        "group has ended",
        "mark",
        "ledger",
        "housekeeping has ended",
        "gauge has ended",
    ]
    assert run.reached == ["running", "stopping"]


@in_virtual_time
async def test_a_run_that_another_one_follows_at_once_leaves_the_ledger_to_it() -> None:
    run = Run()
    run.is_over = False
    running = run.begin()
    run.stages.has_decided.set()
    await run.until_idle()
    run.ending.set()
    await running
    assert "mark" in run.stages.done
    assert "ledger" not in run.stages.done


@in_virtual_time
async def test_a_state_that_is_lost_as_the_stages_end_is_no_bad_end() -> None:
    run = Run()
    is_lost = asyncio.Event()

    async def hold() -> None:
        await is_lost.wait()
        raise SlotFenced(3, None)

    run.tasks.begin("state", hold())
    run.stages.packer_takes_s = 2.0
    running = run.begin()
    run.stages.has_decided.set()
    await run.until_idle()
    run.ending.set()
    await let_pass(1)
    is_lost.set()
    await running
    run.log_ends.set_result(None)
    await run.tasks.over()
    assert not run.tasks.is_in_order
    with pytest.raises(SlotFenced):
        run.tasks.raise_failures()


def test_what_a_stage_ends_with_while_its_node_stops_is_logged_and_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_virtual_time
    async def trial() -> None:
        run = Run()

        async def fails() -> None:
            await run.stages.stopping.wait()
            raise OSError("the disk is full")

        run.stages.deliver = fails  # type: ignore[method-assign]
        running = run.begin()
        run.stages.has_decided.set()
        await run.until_idle()
        run.ending.set()
        await running
        assert not run.tasks.is_in_order
        with pytest.raises(EndedBadly, match="tokyo: deliverer: the disk is full"):
            run.tasks.raise_failures()

    trial()
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.getMessage() == "tokyo: deliverer ended with an error"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "the disk is full"


@in_virtual_time
async def test_a_node_that_is_to_end_before_the_packer_has_decided_ends_in_order() -> None:
    run = Run()
    running = run.begin()
    await run.until_idle()
    run.ending.set()
    await running
    assert run.stages.done[:2] == ["packer", "in"]
    assert run.stages.done[2:] == [
        "stop",
        "packer has ended",
        "in has ended",
        "mark",
        "ledger",
    ]
    assert run.reached == ["stopping"]


@in_virtual_time
async def test_the_log_goes_on_until_all_others_have_ended() -> None:
    run = Run()
    running = run.begin()
    run.ending.set()
    await running
    over = asyncio.create_task(run.tasks.over())
    await run.until_idle()
    assert not over.done()
    run.log_ends.set_result(None)
    await over
    assert run.tasks.is_in_order
    run.tasks.raise_failures()


@in_virtual_time
async def test_a_log_that_fails_as_it_is_closed_is_a_failure_too() -> None:
    run = Run()
    running = run.begin()
    run.ending.set()
    await running
    run.log_ends.set_exception(OSError("the disk is full"))
    await run.tasks.over()
    with pytest.raises(EndedBadly, match="tokyo: log: the disk is full"):
        run.tasks.raise_failures()


@in_virtual_time
async def test_a_stage_that_hangs_keeps_the_node_only_so_long_and_the_ledger_is_left() -> None:
    run = Run()
    run.stages.packer_takes_s = run.stages.ledger_takes_s = FOR_EVER
    running = run.begin()
    run.stages.has_decided.set()
    await run.until_idle()
    loop = asyncio.get_running_loop()
    began = loop.time()
    run.ending.set()
    await running
    assert STAGES_WITHIN_S < loop.time() - began <= STOP_WITHIN_S + 0.01
    assert "mark" in run.stages.done
    assert "ledger" not in run.stages.done
    assert not run.tasks.is_in_order
    run.tasks.raise_failures()  # nothing has failed


@in_virtual_time
async def test_a_failure_of_one_ends_the_run_with_it_and_all_others_too() -> None:
    run = Run()
    running = run.begin()
    run.stages.has_decided.set()
    await run.until_idle()
    run.log_ends.set_exception(OSError("the disk is full"))
    with pytest.raises(OSError, match="the disk is full"):
        await running
    for name in ("in", "out", "gauge", "housekeeping"):
        assert f"{name} has ended" in run.stages.done


@in_virtual_time
async def test_a_stage_that_ends_by_itself_is_a_failure() -> None:
    run = Run()
    running = run.begin()
    await run.until_idle()
    run.log_ends.set_result(None)
    with pytest.raises(RuntimeError, match="tokyo: log ended by itself"):
        await running


def test_the_loss_of_the_state_is_found_where_it_is_all_that_went_wrong() -> None:
    fenced, full = SlotFenced(3, None), JournalFull(2**26)
    broken = StoreFailed("write", "no space")
    assert loss_of_state(fenced) is fenced
    assert loss_of_state(ExceptionGroup("", [ExceptionGroup("", [full]), fenced])) is full
    assert loss_of_state(broken) is None
    assert loss_of_state(ExceptionGroup("", [fenced, broken])) is None
    assert loss_of_state(ExceptionGroup("", [broken])) is None
