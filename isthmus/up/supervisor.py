"""Supervisor of the brokers, servers and nodes of one state folder.

`supervision` decides, this module acts, with one task for each child. Shutdown ends all nodes at
once, then what they use: a node's last acks need the broker, and its last row the journal.

Run in the main thread of the process: children are tied to the thread that starts them.
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
"""Four checks of at most 2 s, 2.5 s apart: a hung node is killed within 12 s."""

BROKER_POLICY = Policy(failed_checks=3)
"""Three checks of at most 3 s, for busy brokers: a hung broker is killed within 11.5 s."""

SERVER_POLICY = Policy(start_limit_s=180.0)
"""Four checks of at most 2 s. A Cassandra starts in ten seconds, on a busy machine in minutes."""

LEFTOVER_PATIENCE_S = 10.0
PID_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """Child, patience, and the child (by kind and name) that has to run before the first start."""

    child: Child
    policy: Policy
    after: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MeshTakenUp:
    """Mesh file and revision of a supervisor, and the problem of a newer file."""

    file: str = ""
    revision: str = ""
    problem: str = ""


class FileNotTakenUp(Exception):
    """The changed mesh file cannot be run; the running mesh goes on."""


def _by_key(plans: Sequence[ChildPlan]) -> dict[tuple[str, str], ChildPlan]:
    """Return plans by kind and name. Raises ValueError for contradictions."""
    found: dict[tuple[str, str], ChildPlan] = {}
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
    """Supervisor of one state folder.

    `clock` is monotonic, in seconds; `wall` is seconds since 1970, for the record only.
    """

    def __init__(
        self,
        state: Path,
        plans: Sequence[ChildPlan],
        *,
        about: MeshTakenUp | None = None,
        reload: Callable[[], tuple[Sequence[ChildPlan], MeshTakenUp]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; start nothing.

        `about` goes into the record. `reload` runs in a thread and returns the plans of the present
        mesh file, or raises FileNotTakenUp.
        """
        self._state = state
        self._about = about or MeshTakenUp()
        self._reload = reload
        self._orders_done = 0
        self._clock = clock
        # Once, so that recorded times stay the same however the wall clock is set.
        self._wall_offset = wall() - clock()
        self._lock = SupervisorLock(state)
        self._stop = asyncio.Event()
        self._file_changed = asyncio.Event()
        self._news = asyncio.Event()
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._caretakers = {
            key: _Caretaker(plan, clock, self._changed) for key, plan in _by_key(plans).items()
        }

    async def run(self) -> None:
        """Look after all children until `stop`; return when none is left.

        Raises AlreadySupervisedError, before any start, if another supervisor has the state folder.
        """
        self._lock.take()
        try:
            await self._end_leftovers()
            self._changed()
            try:
                await self._look_after_all()
            finally:
                await self._end_some(self._caretakers)
        finally:
            self._lock.release()

    async def run_until_signalled(self) -> None:
        """Run with signals: SIGTERM and SIGINT stop, SIGHUP reads the mesh file and retries stopped
        children.
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
        """Have `run` end all children in order and return."""
        self._stop.set()

    def look(self) -> None:
        """Take up the present mesh file, and retry stopped children."""
        self.retry()
        self._file_changed.set()

    async def change(self, plans: Sequence[ChildPlan]) -> None:
        """Replace the children: begin new ones, end missing ones, nodes first, and leave all others
        alone.
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
        """Begin stopped and waiting children at once."""
        for caretaker in self._caretakers.values():
            caretaker.retry()

    def record(self) -> SupervisorRecord:
        """Return the record of the supervisor and its children."""
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
            asked=self._orders_done,
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
                # A caretaker never returns: a finished one has failed, which ends all.
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
        """Take up the mesh file at each announcement."""
        while True:
            await self._file_changed.wait()
            self._file_changed.clear()
            if self._reload is not None:
                try:
                    plans, about = await asyncio.to_thread(self._reload)
                except FileNotTakenUp as error:
                    logger.error("the mesh file is not taken up: %s", error)
                    self._about = replace(self._about, problem=str(error))
                else:
                    self._about = about
                    await self.change(plans)
            self._orders_done += 1
            self._changed()

    async def _look_after(self, caretaker: _Caretaker) -> None:
        if caretaker.plan.after is not None:
            await self._caretakers[caretaker.plan.after].was_running.wait()
        await caretaker.look_after()

    async def _end_some(self, some: Mapping[tuple[str, str], _Caretaker]) -> None:
        problems: list[BaseException] = []
        for kinds in (("node", "page"), ("broker", "server")):
            ending = [one.end() for key, one in some.items() if key[0] in kinds and not one.is_over]
            results = await asyncio.gather(*ending, return_exceptions=True)
            problems += [result for result in results if result is not None]
        if problems:
            # Only now: a child that cannot be ended must not keep others alive.
            raise problems[0]

    async def _end_leftovers(self) -> None:
        """End leftovers of a killed supervisor: its children died too, unless one was just
        starting.
        """
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
    """End the supervisor of a state folder with all children, by force after `patience_s`.

    Returns False if none was running; leftovers of an earlier supervisor are ended in any case.
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
    """Keeper of one child."""

    def __init__(
        self, plan: ChildPlan, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
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
        """True once ended for good."""
        return self._course.phase is Phase.ENDED

    def retry(self) -> None:
        if self._course.phase in (Phase.STOPPED, Phase.WAITING):
            self._to(supervision.retried(self._course, self._clock()))
            self._woken.set()

    async def look_after(self) -> None:
        """Begin the child again and again until cancelled, without ending it."""
        while True:
            await self._until_due()
            self._to(supervision.begun(self._course, self._clock()))
            await self._one_life()

    async def end(self) -> None:
        """End the child for good."""
        self._to(supervision.end_ordered(self._course, self._clock()))
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
            exit_words = "killed, because it gave no answer"
        else:
            exit_words = _exit_words(exit_code, child.last_words())
        logger.warning("%s %s: %s", child.kind, child.name, exit_words)
        self._died(exit_code, exit_words)

    async def _start(self) -> None:
        """Start the child and record its PID at once: a broker runs for seconds before ready."""
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
            # Wait too: the starter has to end a half-started process.
            if starting.cancel():
                await asyncio.gather(starting, return_exceptions=True)

    async def _ask_until_it_ends(self, ended: asyncio.Task[int]) -> bool:
        """Check health until the child has ended (False), or hung and was killed (True)."""
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

    def _died(self, exit_code: int | None, exit_words: str) -> None:
        self._to(
            supervision.died(self._course, exit_code, exit_words, self._clock(), self.plan.policy)
        )

    def _to(self, course: Course) -> None:
        before, self._course = self._course, course
        if course.phase is Phase.RUNNING:
            self.was_running.set()
        if (before.phase, before.restarts) != (course.phase, course.restarts):
            self._changed()


def _exit_words(exit_code: int, last_words: str) -> str:
    how = processes.exit_words(exit_code)
    return f"{how}: {last_words}" if last_words and exit_code > 0 else how
