"""The supervisor with real processes: tiny ones that die, hang, stop and do not want to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from isthmus import processes
from isthmus.local_brokers import LocalBroker
from isthmus.processes import ProcessMark
from isthmus.supervised import (
    BrokerProcess,
    Child,
    ChildStartError,
    Kind,
    NodeProcess,
    last_line,
    rotate,
    site_node,
)
from isthmus.supervision import Policy
from isthmus.supervisor import Plan, Supervisor, end_supervisor
from isthmus.supervisor_record import (
    AlreadySupervisedError,
    ChildRecord,
    SupervisorLock,
    read_record,
)
from tests.conftest import Eventually

QUICK = Policy(
    check_every_s=0.1,
    failed_checks=3,
    start_check_every_s=0.02,
    first_wait_s=0.05,
    longest_wait_s=0.1,
    longest_wait_at_once_s=0.2,
)

# A node in small: it says where it answers, and does what its second argument says.
NODE = textwrap.dedent("""
    import json, os, signal, sys
    from pathlib import Path
    from socketserver import BaseRequestHandler, TCPServer

    class Health(BaseRequestHandler):
        def handle(self):
            self.request.recv(1000)
            self.request.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n")

    admin_file, behaviour = Path(sys.argv[1]), sys.argv[2]
    print("begun", behaviour, flush=True)
    if behaviour == "dies at once":
        sys.exit("no luck")
    if behaviour == "stops" or Path(behaviour).exists():
        print("the state is lost: run isthmus recover", flush=True)
        sys.exit(3)
    if behaviour == "never answers":
        signal.pause()
    if behaviour == "ignores SIGTERM":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: (print("ended well", flush=True), os._exit(0)))
    server = TCPServer(("127.0.0.1", 0), Health)
    told = {"pid": os.getpid(), "admin_port": server.server_address[1]}
    admin_file.with_suffix(".new").write_text(json.dumps(told))
    admin_file.with_suffix(".new").replace(admin_file)
    server.serve_forever()
""")


class Bench:
    """A state folder, nodes in it, and a supervisor over them."""

    def __init__(self, state: Path, eventually: Eventually) -> None:
        self.state = state
        self.supervisor: Supervisor | None = None
        self._eventually = eventually
        self._running: asyncio.Task[None] | None = None
        self.seen: set[ProcessMark] = set()

    def node(self, name: str, behaviour: str = "runs", **patience: float) -> NodeProcess:
        admin_file = self.state / f"{name}.json"
        return NodeProcess(
            name,
            (sys.executable, "-c", NODE, str(admin_file), behaviour),
            self.state / "logs" / f"{name}.log",
            admin_file,
            **{"check_limit_s": 0.2, "stop_patience_s": 5.0, **patience},
        )

    def supervise(self, *children: Child | Plan, policy: Policy = QUICK) -> None:
        plans = [one if isinstance(one, Plan) else Plan(one, policy) for one in children]
        self.supervisor = Supervisor(self.state, plans)
        self._running = asyncio.create_task(self.supervisor.run())

    def child(self, name: str) -> ChildRecord | None:
        """As the file tells others."""
        record = read_record(self.state)
        if record is None:
            return None
        self.seen |= set(record.child_marks())
        found = [child for child in record.children if child.name == name]
        return found[0] if found else None

    async def until(self, name: str, test: Callable[[ChildRecord], bool], what: str) -> ChildRecord:
        """Waits until the record of that child is as wanted."""

        def met() -> ChildRecord | None:
            child = self.child(name)
            return child if child is not None and test(child) else None

        found: ChildRecord = await self._eventually(
            met, lambda: f"{what}; it is {self.child(name)}", deadline_s=60
        )
        return found

    async def running(self, name: str, *, restarts: int = 0) -> ChildRecord:
        return await self.until(
            name,
            lambda child: child.state == "running" and child.restarts >= restarts,
            f"{name} runs after {restarts} restarts",
        )

    async def stop(self) -> None:
        assert self.supervisor is not None
        assert self._running is not None
        self.supervisor.stop()
        await self._running

    async def clean_up(self) -> None:
        if self._running is not None and not self._running.done():
            await self.stop()
        # A supervisor that was killed takes its children along, but not in the same instant.
        await self._eventually(
            lambda: not any(each.is_alive for each in self.seen),
            lambda: f"all gone, but {[each.pid for each in self.seen if each.is_alive]}",
        )


@pytest.fixture
async def bench(tmp_path: Path, eventually: Eventually) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "state", eventually)
    bench.state.mkdir()
    try:
        yield bench
    finally:
        await bench.clean_up()


def pid_of(child: ChildRecord) -> int:
    assert child.pid is not None
    return child.pid


async def test_what_dies_is_begun_again(bench: Bench) -> None:
    bench.supervise(bench.node("paris"), bench.node("tokyo"))
    first = await bench.running("paris")
    other = await bench.running("tokyo")
    os.kill(pid_of(first), signal.SIGKILL)
    second = await bench.running("paris", restarts=1)
    assert second.pid != first.pid
    assert second.last_exit == "signal SIGKILL"
    assert bench.child("tokyo") == other


async def test_what_hangs_is_killed_and_replaced(bench: Bench) -> None:
    bench.supervise(bench.node("paris"))
    first = await bench.running("paris")
    os.kill(pid_of(first), signal.SIGSTOP)
    second = await bench.running("paris", restarts=1)
    assert second.pid != first.pid
    assert second.last_exit == "killed, because it gave no answer"


async def test_what_never_answers_is_killed_and_replaced(bench: Bench) -> None:
    policy = Policy(start_limit_s=0.3, start_check_every_s=0.05, first_wait_s=0.05)
    bench.supervise(bench.node("paris", "never answers"), policy=policy)
    child = await bench.until("paris", lambda child: child.restarts >= 2, "two restarts")
    assert child.last_exit == "killed, because it gave no answer"


async def test_what_stops_with_a_reason_stays_so_until_it_is_tried_again(bench: Bench) -> None:
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


async def test_what_dies_at_once_is_tried_again_and_again_and_says_why(bench: Bench) -> None:
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
        await Supervisor(bench.state, [Plan(bench.node("paris"), QUICK)]).run()
    assert raised.value.pid == os.getpid()
    assert bench.child("paris") == first
    await bench.stop()
    SupervisorLock(bench.state).take()


class FakeBroker:
    """A broker in small: a child that is no process, and keeps what it was told."""

    kind: Kind = "broker"
    pid = None

    def __init__(self, told: list[str]) -> None:
        self.name = "paris"
        self.told = told
        self.may_start = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

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
    bench.supervise(Plan(node, QUICK, after=("broker", "paris")), broker)
    broker.may_start.set()
    record = read_record

    def both_run() -> bool:
        now = record(bench.state)
        return now is not None and [child.state for child in now.children] == ["running"] * 2

    await bench._eventually(both_run, "both run", deadline_s=60)
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
    await bench._eventually(lambda: told == ["broker starts"], "it starts")
    await bench.stop()
    assert told == ["broker starts", "broker ends"]


async def test_a_failure_of_the_supervisor_itself_ends_all_and_is_raised(bench: Bench) -> None:
    class Broken(FakeBroker):
        async def start(self) -> None:
            raise ZeroDivisionError("a mistake of ours")

    bench.supervise(Broken([]), bench.node("tokyo"))
    assert bench._running is not None
    with pytest.raises(ZeroDivisionError):
        await bench._running
    ended = bench.child("tokyo")
    assert ended is not None
    assert ended.pid is None


def test_two_children_of_one_name_or_waiting_for_nobody_are_refused(
    tmp_path: Path, bench: Bench
) -> None:
    with pytest.raises(ValueError, match="two children"):
        Supervisor(tmp_path, [Plan(bench.node("a"), QUICK), Plan(bench.node("a"), QUICK)])
    with pytest.raises(ValueError, match="no child"):
        Supervisor(tmp_path, [Plan(bench.node("a"), QUICK, after=("broker", "a"))])


# The supervisor as a process, to be killed and signalled.
SUPERVISOR = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from isthmus.supervised import NodeProcess
    from isthmus.supervision import Policy
    from isthmus.supervisor import Plan, Supervisor

    state, node = Path(sys.argv[1]), sys.argv[2]
    policy = Policy(start_check_every_s=0.02)

    async def main():
        plans = [
            Plan(
                NodeProcess(
                    name,
                    (sys.executable, "-c", node, str(state / f"{name}.json"), behaviour),
                    state / "logs" / f"{name}.log",
                    state / f"{name}.json",
                ),
                policy,
            )
            for name, behaviour in (("well", "runs"), ("other", str(state / "broken")))
        ]
        await Supervisor(state, plans).run_until_signalled()

    asyncio.run(main())
""")


@pytest.fixture
def supervisor_process(bench: Bench) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(bench.state), NODE])
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


async def test_children_do_not_outlive_a_killed_supervisor(
    bench: Bench, supervisor_process: subprocess.Popen[bytes], eventually: Eventually
) -> None:
    await bench.running("well")
    await bench.running("other")
    supervisor_process.kill()
    supervisor_process.wait()
    await eventually(
        lambda: not any(each.is_alive for each in bench.seen), "no child left", deadline_s=10
    )
    record = read_record(bench.state)
    assert record is not None
    assert not record.is_alive
    # The next one on the same state begins anew.
    bench.supervise(bench.node("well"))
    await bench.running("well")


async def test_sigterm_ends_it_in_good_order(
    bench: Bench, supervisor_process: subprocess.Popen[bytes]
) -> None:
    await bench.running("well")
    await bench.running("other")
    assert await end_supervisor(bench.state)
    assert supervisor_process.wait() == 0
    assert (bench.state / "logs" / "well.log").read_text().endswith("ended well\n")
    assert not await end_supervisor(bench.state)


async def test_sighup_begins_again_what_has_stopped(
    bench: Bench, supervisor_process: subprocess.Popen[bytes]
) -> None:
    well = await bench.running("well")
    first = await bench.running("other")
    (bench.state / "broken").touch()
    os.kill(pid_of(first), signal.SIGKILL)
    await bench.until("other", lambda child: child.state == "stopped", "stopped")
    (bench.state / "broken").unlink()
    supervisor_process.send_signal(signal.SIGHUP)
    await bench.running("other", restarts=2)
    assert bench.child("well") == well


@pytest.fixture
def orphan() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody looks after."""
    orphan = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield orphan
    orphan.kill()
    orphan.wait()


async def test_leftovers_of_a_supervisor_are_ended_first(
    bench: Bench, orphan: subprocess.Popen[bytes]
) -> None:
    own = processes.mark(orphan.pid)
    assert own is not None
    gone = {"pid": 2**22 + 1, "began": 1, "boot": own.boot}
    child = ChildRecord("paris", "node", own.pid, own.began, "running", 0, None, None, 0.0)
    fields = {name: getattr(child, name) for name in ChildRecord.__dataclass_fields__}
    (bench.state / "supervisor.json").write_text(json.dumps({**gone, "children": [fields]}))
    bench.supervise(bench.node("tokyo"))
    await bench.running("tokyo")
    assert orphan.wait(timeout=10) == -signal.SIGTERM


def test_a_sites_node_is_the_relay_command_with_its_files_in_the_state_folder() -> None:
    node = site_node(Path("mesh.yaml"), "paris", Path("state"))
    assert node.command[1:] == (
        *("-m", "isthmus", "relay", "mesh.yaml", "--site", "paris", "--state", "state"),
    )
    assert node.admin_file == Path("state/sites/paris/node.json")
    assert node.log_file == Path("state/logs/paris.log")


def test_a_log_is_moved_aside_when_it_has_grown(tmp_path: Path) -> None:
    log = tmp_path / "paris.log"
    rotate(log, 5, 2)
    for text in ("first", "second", "third", "4th"):
        log.write_text(text)
        rotate(log, 5, 2)
    assert log.read_text() == "4th"
    assert (tmp_path / "paris.log.1").read_text() == "third"
    assert (tmp_path / "paris.log.2").read_text() == "second"
    assert len(list(tmp_path.iterdir())) == 3


def test_the_last_words_are_those_since_the_start(tmp_path: Path) -> None:
    log = tmp_path / "paris.log"
    assert last_line(log, 0) == ""
    log.write_text("from before\n")
    start = log.stat().st_size
    assert last_line(log, start) == ""
    log.write_text("from before\none\n  two  \n\n")
    assert last_line(log, start) == "two"
    log.write_text("x" * 20_000)
    assert len(last_line(log, 0)) == 8192


async def test_a_broker_that_dies_or_hangs_is_replaced_and_ended_while_it_starts(
    bench: Bench, local_broker_factory: Callable[..., Awaitable[LocalBroker]]
) -> None:
    broker = await local_broker_factory("paris", start=False)
    patient = Policy(check_every_s=0.2, failed_checks=2, first_wait_s=0.05)
    bench.supervise(Plan(BrokerProcess(broker, check_limit_s=1.5), patient))
    first = await bench.running("paris")
    os.kill(pid_of(first), signal.SIGKILL)
    second = await bench.running("paris", restarts=1)
    assert second.last_exit == "signal SIGKILL"
    assert second.pid != first.pid
    broker.suspend()
    third = await bench.until(
        "paris", lambda child: child.restarts >= 2 and child.pid is not None, "a third process"
    )
    assert third.last_exit == "killed, because it gave no answer"
    await bench.stop()
    assert processes.mark(pid_of(third)) is None
