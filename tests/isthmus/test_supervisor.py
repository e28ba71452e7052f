"""The supervisor with real processes: tiny ones that die, hang, stop and do not want to end."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from isthmus import processes
from isthmus.up.supervised import ChildStartError, Kind, NodeProcess
from isthmus.up.supervision import Policy
from isthmus.up.supervisor import ChildPlan, FileNotTakenUp, MeshTakenUp, Supervisor
from isthmus.up.supervisor_record import AlreadySupervisedError, SupervisorLock, read_record
from tests.isthmus.supervisor_bench import QUICK, Bench, pid_of
from tests.waiting import until


async def test_a_child_that_dies_is_begun_again(bench: Bench) -> None:
    bench.supervise(bench.node("paris"), bench.node("tokyo"))
    first = await bench.running("paris")
    other = await bench.running("tokyo")
    os.kill(pid_of(first), signal.SIGKILL)
    second = await bench.running("paris", restarts=1)
    assert second.pid != first.pid
    assert second.last_exit == "signal SIGKILL"
    assert bench.child("tokyo") == other


async def test_a_child_that_hangs_is_killed_and_replaced(bench: Bench) -> None:
    bench.supervise(bench.node("paris"))
    first = await bench.running("paris")
    os.kill(pid_of(first), signal.SIGSTOP)
    second = await bench.running("paris", restarts=1)
    assert second.pid != first.pid
    assert second.last_exit == "killed, because it gave no answer"


async def test_a_child_that_never_answers_is_killed_and_replaced(bench: Bench) -> None:
    policy = Policy(start_limit_s=0.3, start_check_every_s=0.05, first_wait_s=0.05)
    bench.supervise(bench.node("paris", "never answers"), policy=policy)
    child = await bench.until("paris", lambda child: child.restarts >= 2, "two restarts")
    assert child.last_exit == "killed, because it gave no answer"


async def test_a_child_that_stops_with_a_reason_stays_so_until_retried(bench: Bench) -> None:
    broken = bench.state / "broken"
    broken.touch()
    bench.supervise(bench.node("paris", str(broken)), bench.node("tokyo"))
    stopped = await bench.until("paris", lambda child: child.state == "stopped", "stopped")
    assert stopped.reason == "exit code 3: the state is lost: run isthmus recover"
    assert (stopped.pid, stopped.restarts) == (None, 0)
    await bench.running("tokyo")
    assert bench.child("paris") == stopped
    broken.unlink()
    assert bench.supervisor is not None
    bench.supervisor.retry()
    mended = await bench.running("paris", restarts=1)
    assert mended.reason is None


async def test_a_child_that_dies_at_once_is_retried_and_its_reason_recorded(bench: Bench) -> None:
    bench.supervise(bench.node("paris", "dies at once"))
    child = await bench.until("paris", lambda child: child.restarts >= 3, "three restarts")
    assert child.last_exit == "exit code 1: no luck"


async def test_a_command_that_is_not_there_is_said_and_tried_again(bench: Bench) -> None:
    node = bench.node("paris")
    node.command = ("/no/such/program",)
    bench.supervise(node)
    child = await bench.until("paris", lambda child: child.restarts >= 1, "a restart")
    assert child.last_exit is not None
    assert "/no/such/program" in child.last_exit


async def test_at_the_end_all_are_gone_those_that_ignore_sigterm_too(bench: Bench) -> None:
    bench.supervise(
        bench.node("well"),
        bench.node("deaf", "ignores SIGTERM", stop_patience_s=0.3),
        bench.node("stopped", "stops"),
        bench.node("waiting", "dies at once"),
    )
    well, deaf = await bench.running("well"), await bench.running("deaf")
    await bench.until("stopped", lambda child: child.state == "stopped", "stopped")
    await bench.stop()
    for child in (well, deaf):
        assert processes.mark(pid_of(child)) is None
    for name in ("well", "deaf", "stopped", "waiting"):
        ended = bench.child(name)
        assert ended is not None
        assert (ended.state, ended.pid) == ("ended", None)
    assert (bench.state / "logs" / "well.log").read_text() == "begun runs\nended well\n"


async def test_a_suspended_node_ends_in_good_order_too(bench: Bench) -> None:
    bench.supervise(bench.node("paris"), policy=Policy(start_check_every_s=0.02))
    child = await bench.running("paris")
    os.kill(pid_of(child), signal.SIGSTOP)
    await bench.stop()
    assert (bench.state / "logs" / "paris.log").read_text().endswith("ended well\n")


async def test_a_second_supervisor_on_the_same_state_is_told_of_the_first(bench: Bench) -> None:
    bench.supervise(bench.node("paris"))
    first = await bench.running("paris")
    with pytest.raises(AlreadySupervisedError, match="isthmus down") as raised:
        await Supervisor(bench.state, [ChildPlan(bench.node("paris"), QUICK)]).run()
    assert raised.value.pid == os.getpid()
    assert bench.child("paris") == first
    await bench.stop()
    SupervisorLock(bench.state).take()


async def test_a_change_begins_what_is_new_and_ends_what_is_gone_and_leaves_the_rest(
    bench: Bench,
) -> None:
    stays, goes = bench.node("stays"), bench.node("goes")
    bench.supervise(stays, goes)
    before = await bench.running("stays")
    ended = await bench.running("goes")
    assert bench.supervisor is not None
    comes = bench.node("comes")
    await bench.supervisor.change([ChildPlan(comes, QUICK), ChildPlan(stays, QUICK)])
    new = await bench.running("comes")
    assert bench.child("stays") == before
    assert bench.child("goes") is None
    assert processes.mark(pid_of(ended)) is None
    os.kill(pid_of(new), signal.SIGKILL)
    await bench.running("comes", restarts=1)
    await bench.supervisor.change([ChildPlan(bench.node("goes"), QUICK), ChildPlan(stays, QUICK)])
    await bench.running("goes")
    assert bench.child("stays") == before


async def test_a_file_that_cannot_be_run_changes_nothing_and_is_said(bench: Bench) -> None:
    answers: list[str | list[ChildPlan]] = ["mesh.yaml:3:1: no such site"]

    def reload() -> tuple[list[ChildPlan], MeshTakenUp]:
        answer = answers.pop(0)
        if isinstance(answer, str):
            raise FileNotTakenUp(answer)
        return answer, MeshTakenUp("mesh.yaml", "new")

    paris = bench.node("paris")
    bench.supervise(paris, about=MeshTakenUp("mesh.yaml", "old"), reload=reload)
    before = await bench.running("paris")
    supervisor = bench.supervisor
    assert supervisor is not None
    supervisor.look()
    await until(lambda: supervisor.record().asked == 1, "looked", 10)
    record = supervisor.record()
    assert (record.revision, record.file_problem) == ("old", "mesh.yaml:3:1: no such site")
    answers.append([ChildPlan(paris, QUICK)])
    supervisor.look()
    await until(lambda: supervisor.record().asked == 2, "looked again", 10)
    record = supervisor.record()
    assert (record.revision, record.file_problem) == ("new", "")
    assert read_record(bench.state) == record
    assert bench.child("paris") == before


class FakeBroker:
    """A broker in small: a child that is no process, and keeps what it was told."""

    kind: Kind = "broker"
    pid = None

    def __init__(self, told: list[str]) -> None:
        self.name = "paris"
        self.told = told
        self.may_start = asyncio.Event()
        self._ended = asyncio.Event()

    async def start(self) -> None:
        self.told.append("broker starts")
        await self.may_start.wait()
        if self.told.count("broker starts") == 1:
            raise ChildStartError(self.name, "its port is taken")
        self.told.append("broker is ready")

    async def healthy(self) -> bool:
        return True

    async def wait_ended(self) -> int:
        await self._ended.wait()
        return 0

    def last_words(self) -> str:
        return ""

    def kill(self) -> None:
        self._ended.set()

    async def stop(self) -> None:
        self.told.append("broker ends")


class WatchedNode(NodeProcess):
    """A node that says when it is begun and ended."""

    told: list[str]

    async def start(self) -> None:
        self.told.append("node starts")
        await super().start()

    async def stop(self) -> None:
        await super().stop()
        self.told.append("node is gone")


async def test_nodes_begin_after_their_broker_and_end_before_it(bench: Bench) -> None:
    told: list[str] = []
    broker = FakeBroker(told)
    plain = bench.node("paris")
    node = WatchedNode("paris", plain.command, plain.log_file, plain.admin_file)
    node.told = told
    bench.supervise(ChildPlan(node, QUICK, after=("broker", "paris")), broker)
    broker.may_start.set()
    record = read_record

    def both_run() -> bool:
        now = record(bench.state)
        return now is not None and [child.state for child in now.children] == ["running"] * 2

    await until(both_run, "both run", 60)
    await bench.stop()
    assert told == [
        "broker starts",
        "broker starts",
        "broker is ready",
        "node starts",
        "node is gone",
        "broker ends",
    ]


async def test_ending_while_a_broker_starts_waits_for_nothing(bench: Bench) -> None:
    told: list[str] = []
    bench.supervise(FakeBroker(told))
    await until(lambda: told == ["broker starts"], "it starts", 10)
    await bench.stop()
    assert told == ["broker starts", "broker ends"]


async def test_a_failure_of_the_supervisor_itself_ends_all_and_is_raised(bench: Bench) -> None:
    class Broken(FakeBroker):
        async def start(self) -> None:
            raise ZeroDivisionError("a mistake of ours")

    bench.supervise(Broken([]), bench.node("tokyo"))
    assert bench.task is not None
    with pytest.raises(ZeroDivisionError):
        await bench.task
    ended = bench.child("tokyo")
    assert ended is not None
    assert ended.pid is None


def test_two_children_of_one_name_or_waiting_for_nobody_are_refused(
    tmp_path: Path, bench: Bench
) -> None:
    with pytest.raises(ValueError, match="two children"):
        Supervisor(tmp_path, [ChildPlan(bench.node("a"), QUICK), ChildPlan(bench.node("a"), QUICK)])
    with pytest.raises(ValueError, match="no child"):
        Supervisor(tmp_path, [ChildPlan(bench.node("a"), QUICK, after=("broker", "a"))])
