"""The supervisor as a process: killed, signalled, and following one that left children behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from isthmus import processes
from isthmus.up.supervisor import end_supervisor
from isthmus.up.supervisor_record import ChildRecord, read_record
from tests.isthmus.supervisor_bench import NODE, Bench, pid_of
from tests.waiting import until

# The supervisor as a process, to be killed and signalled.
SUPERVISOR = textwrap.dedent("""
    import asyncio, sys
    from pathlib import Path
    from isthmus.up.supervised import NodeProcess
    from isthmus.up.supervision import Policy
    from isthmus.up.supervisor import ChildPlan, Supervisor

    state, node = Path(sys.argv[1]), sys.argv[2]
    policy = Policy(start_check_every_s=0.02)

    async def main():
        plans = [
            ChildPlan(
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
    bench: Bench, supervisor_process: subprocess.Popen[bytes]
) -> None:
    await bench.running("well")
    await bench.running("other")
    supervisor_process.kill()
    supervisor_process.wait()
    await until(lambda: not any(each.is_alive for each in bench.seen), "no child left", 10)
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
