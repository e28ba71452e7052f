"""Keeps the brokers and nodes of one state folder running: what `isthmus up` is.

What to do is decided in `supervision`; here it is done. One task looks after each child. The order
of shutdown is nodes first, all at once, then brokers: a node's last acks need its broker.

Run it in the main thread of its process: children are tied to the thread that starts them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isthmus import processes
from isthmus.up import supervision
from isthmus.up.supervised import Child, ChildStartError
from isthmus.up.supervision import Course, Phase, Policy
from isthmus.up.supervisor_record import (
    ChildRecord,
    SupervisorLock,
    SupervisorRecord,
    read_record,
    write_record,
)
from relay.waiters import set_within

logger = logging.getLogger(__name__)

NODE_POLICY = Policy()
"""Four checks of at most 2 s, 2.5 s apart: what hangs is killed within 12 s."""

BROKER_POLICY = Policy(failed_checks=3)
"""Three checks of at most 3 s, as a busy broker may take its time: killed within 11.5 s."""

LEFTOVER_PATIENCE_S = 10.0
PID_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """A child, how patient to be with it, and which child (by kind and name) has to have been
    running before it is begun for the first time."""

    child: Child
    policy: Policy
    after: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MeshTakenUp:
    """The mesh file that a supervisor runs, its revision, and why not a newer one."""

    file: str = ""
    revision: str = ""
    problem: str = ""


class FileNotTakenUp(Exception):
    """The mesh file as it is now cannot be run; what runs goes on."""


def _by_key(plans: Sequence[Plan]) -> dict[tuple[str, str], Plan]:
    """By kind and name. Raises ValueError for plans that contradict each other."""
    found: dict[tuple[str, str], Plan] = {}
    for plan in plans:
        key = (plan.child.kind, plan.child.name)
        if key in found:
            raise ValueError(f"two children are called {' '.join(key)}: give each its name")
        found[key] = plan
    for plan in plans:
        if plan.after is not None and plan.after not in found:
            raise ValueError(f"{plan.child.name} waits for {plan.after}, which is no child")
    return found


class Supervisor:
    """Runs until told to stop.

    `clock` is monotonic, in seconds; `wall` is seconds since 1970, for the record only.
    """

    def __init__(
        self,
        state: Path,
        plans: Sequence[Plan],
        *,
        about: MeshTakenUp | None = None,
        reload: Callable[[], tuple[Sequence[Plan], MeshTakenUp]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`about` is what the record says of the mesh. `reload` gives the plans of the mesh file
        as it is now, called in a thread; it raises FileNotTakenUp.
        """
        self._state = state
        self._about = about or MeshTakenUp()
        self._reload = reload
        self._asked = 0
        self._clock = clock
        # Once: so that a time stays what it was told to be, however the wall clock is set.
        self._wall_offset = wall() - clock()
        self._lock = SupervisorLock(state)
        self._stop = asyncio.Event()
        self._told = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._caretakers = {
            key: _Caretaker(plan, clock, self._changed) for key, plan in _by_key(plans).items()
        }

    async def run(self) -> None:
        """Looks after all children until `stop`; returns when none is left.

        Raises AlreadySupervisedError if another supervisor has the state folder; nothing is
        started then.
        """
        self._lock.take()
        try:
            await self._end_leftovers()
            self._changed()
            try:
                await self._look_after_all()
            finally:
                await self._end_all()
        finally:
            self._lock.release()

    async def run_until_signalled(self) -> None:
        """As `run`; SIGTERM and SIGINT stop it, SIGHUP has it look at the mesh file, and begins
        again what has stopped.
        """
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.look}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            await self.run()
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Has `run` end all children, in order, and return."""
        self._stop.set()

    def look(self) -> None:
        """Takes up the mesh file as it is now, and retries."""
        self.retry()
        self._told.set()

    async def change(self, plans: Sequence[Plan]) -> None:
        """Looks after these children from now on: begins what is new, ends what is not among
        them any more, nodes first, and leaves all others alone.
        """
        wanted = _by_key(plans)
        gone = {key: one for key, one in self._caretakers.items() if key not in wanted}
        for key in gone:
            if (task := self._tasks.pop(key, None)) is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for key, plan in wanted.items():
            if key not in self._caretakers:
                self._caretakers[key] = _Caretaker(plan, self._clock, self._changed)
                self._begin(key)
        self._changed()
        try:
            await self._end_some(gone)
        finally:
            for key in gone:
                del self._caretakers[key]
            self._changed()

    def retry(self) -> None:
        """Begins again at once what has stopped with a reason, or waits after deaths."""
        for caretaker in self._caretakers.values():
            caretaker.retry()

    def record(self) -> SupervisorRecord:
        """The supervisor and its children as they are now."""
        own = processes.mark(os.getpid())
        assert own is not None
        return SupervisorRecord(
            pid=own.pid,
            began=own.began,
            boot=own.boot,
            children=tuple(each.record(self._wall_offset) for each in self._caretakers.values()),
            file=self._about.file,
            revision=self._about.revision,
            file_problem=self._about.problem,
            asked=self._asked,
        )

    async def _look_after_all(self) -> None:
        own = {
            asyncio.create_task(self._stop.wait(), name="told to stop"),
            asyncio.create_task(self._take_up_changes(), name="told to look"),
        }
        for key in self._caretakers:
            self._begin(key)
        self._news.clear()
        try:
            while True:
                # A caretaker never returns: one that is done has failed, and then all shall end.
                news = asyncio.create_task(self._news.wait())
                watched = {*own, *self._tasks.values(), news}
                done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                self._news.clear()
                if ended := [t for t in done if t is not news and not t.cancelled()]:
                    break
        finally:
            every = {*own, *self._tasks.values()}
            for task in every:
                task.cancel()
            await asyncio.gather(*every, return_exceptions=True)
            self._tasks.clear()
        for task in ended:
            task.result()

    def _begin(self, key: tuple[str, str]) -> None:
        self._tasks[key] = asyncio.create_task(self._look_after(self._caretakers[key]))
        self._news.set()

    async def _take_up_changes(self) -> None:
        """Each time that somebody says that the mesh file has changed."""
        while True:
            await self._told.wait()
            self._told.clear()
            if self._reload is not None:
                try:
                    plans, about = await asyncio.to_thread(self._reload)
                except FileNotTakenUp as error:
                    logger.error("the mesh file is not taken up: %s", error)
                    self._about = replace(self._about, problem=str(error))
                else:
                    self._about = about
                    await self.change(plans)
            self._asked += 1
            self._changed()

    async def _look_after(self, caretaker: _Caretaker) -> None:
        if caretaker.plan.after is not None:
            await self._caretakers[caretaker.plan.after].was_running.wait()
        await caretaker.look_after()

    async def _end_all(self) -> None:
        await self._end_some(self._caretakers)

    async def _end_some(self, some: Mapping[tuple[str, str], _Caretaker]) -> None:
        problems: list[BaseException] = []
        for kind in ("node", "broker"):
            ending = [one.end() for key, one in some.items() if key[0] == kind and not one.is_over]
            results = await asyncio.gather(*ending, return_exceptions=True)
            problems += [result for result in results if result is not None]
        if problems:
            # Only now: one that cannot be ended must not keep the others alive.
            raise problems[0]

    async def _end_leftovers(self) -> None:
        """A supervisor that was killed took its children along, unless one was just starting."""
        record = read_record(self._state)
        if record is not None:
            await processes.end(
                record.child_marks(), first=signal.SIGTERM, patience_s=LEFTOVER_PATIENCE_S
            )

    def _changed(self) -> None:
        try:
            write_record(self._state, self.record())
        except OSError as error:
            # A full disk must not end the mesh; the next change writes the whole record again.
            logger.error("cannot write the supervisor's record in %s: %s", self._state, error)


async def end_supervisor(state: Path, *, patience_s: float = 60.0) -> bool:
    """Ends the supervisor of a state folder, and with it all its children; False if there is none.

    By force after `patience_s`. What an earlier one left running is ended in any case.
    """
    record = read_record(state)
    if record is None:
        return False
    was_alive = record.is_alive
    await processes.end([record.mark], first=signal.SIGTERM, patience_s=patience_s)
    last = read_record(state) or record
    await processes.end(last.child_marks(), first=signal.SIGTERM, patience_s=LEFTOVER_PATIENCE_S)
    return was_alive


class _Caretaker:
    """Looks after one child."""

    def __init__(self, plan: Plan, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self.plan = plan
        self.was_running = asyncio.Event()
        self._clock = clock
        self._changed = changed
        self._woken = asyncio.Event()
        self._course = supervision.new_course(clock())

    def record(self, wall_offset: float) -> ChildRecord:
        child, course = self.plan.child, self._course
        pid = child.pid
        own = None if pid is None else processes.mark(pid)
        return ChildRecord(
            name=child.name,
            kind=child.kind,
            pid=pid,
            began=None if own is None else own.began,
            state=course.phase.value,
            restarts=course.restarts,
            last_exit=course.last_exit,
            reason=course.reason,
            since=course.since + wall_offset,
        )

    @property
    def is_over(self) -> bool:
        """It was ended for good."""
        return self._course.phase is Phase.ENDED

    def retry(self) -> None:
        if self._course.phase in (Phase.STOPPED, Phase.WAITING):
            self._to(supervision.retried(self._course, self._clock()))
            self._woken.set()

    async def look_after(self) -> None:
        """Begins it, again and again, until cancelled. Does not end it then."""
        while True:
            await self._until_due()
            self._to(supervision.begun(self._course, self._clock()))
            await self._one_life()

    async def end(self) -> None:
        """Ends it for good."""
        self._to(supervision.told_to_end(self._course, self._clock()))
        await self.plan.child.stop()
        self._died(None, "ended by the supervisor")

    async def _until_due(self) -> None:
        while True:
            self._woken.clear()
            wait_s = None
            if self._course.phase is Phase.WAITING:
                wait_s = self._course.due_at - self._clock()
                if wait_s <= 0:
                    return
            await set_within(wait_s, self._woken)

    async def _one_life(self) -> None:
        child = self.plan.child
        try:
            await self._start()
        except ChildStartError as error:
            logger.warning("%s %s could not be started: %s", child.kind, child.name, error.reason)
            self._died(None, f"could not be started: {error.reason}")
            return
        ended = asyncio.create_task(child.wait_ended())
        try:
            was_killed = await self._ask_until_it_ends(ended)
            exit_code = await ended
        finally:
            ended.cancel()
        if was_killed:
            told = "killed, because it gave no answer"
        else:
            told = _told(exit_code, child.last_words())
        logger.warning("%s %s: %s", child.kind, child.name, told)
        self._died(exit_code, told)

    async def _start(self) -> None:
        """Starts it, and has its PID written as soon as there is one: a broker is a process for
        seconds before it is ready."""
        known = self.plan.child.pid
        starting = asyncio.create_task(self.plan.child.start())
        try:
            while not starting.done():
                await asyncio.wait({starting}, timeout=PID_POLL_S)
                if self.plan.child.pid != known:
                    known = self.plan.child.pid
                    self._changed()
            starting.result()
        finally:
            # Waits for it too: what is half started has to be ended by whoever started it.
            if starting.cancel():
                await asyncio.gather(starting, return_exceptions=True)

    async def _ask_until_it_ends(self, ended: asyncio.Task[int]) -> bool:
        """Asks for its health until it has ended (False), or hung and was killed (True)."""
        child, policy = self.plan.child, self.plan.policy
        while True:
            asked_at = self._clock()
            answer = asyncio.create_task(child.healthy())
            try:
                await asyncio.wait({ended, answer}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    return False
                now = self._clock()
                self._to(supervision.checked(self._course, answer.result(), now))
            finally:
                answer.cancel()
            if supervision.hangs(self._course, now, policy):
                self._to(supervision.killed(self._course, now))
                child.kill()
                return True
            next_at = supervision.next_check_at(self._course, asked_at, policy)
            await asyncio.wait({ended}, timeout=max(0.0, next_at - now))
            if ended.done():
                return False

    def _died(self, exit_code: int | None, told: str) -> None:
        self._to(supervision.died(self._course, exit_code, told, self._clock(), self.plan.policy))

    def _to(self, course: Course) -> None:
        before, self._course = self._course, course
        if course.phase is Phase.RUNNING:
            self.was_running.set()
        if (before.phase, before.restarts) != (course.phase, course.restarts):
            self._changed()


def _told(exit_code: int, last_words: str) -> str:
    how = f"exit code {exit_code}"
    if exit_code < 0:
        try:
            how = f"signal {signal.Signals(-exit_code).name}"
        except ValueError:  # a real-time signal has no name
            how = f"signal {-exit_code}"
    return f"{how}: {last_words}" if last_words and exit_code > 0 else how
