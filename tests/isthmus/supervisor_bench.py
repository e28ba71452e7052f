"""A supervisor over tiny nodes in a folder of its own, and what a test asks of it."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from isthmus.processes import ProcessMark
from isthmus.up.supervised import Child, NodeProcess
from isthmus.up.supervision import Policy
from isthmus.up.supervisor import ChildPlan, Supervisor
from isthmus.up.supervisor_record import ChildRecord, read_record
from tests.waiting import until

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

    def __init__(self, state: Path) -> None:
        self.state = state
        self.supervisor: Supervisor | None = None
        self.task: asyncio.Task[None] | None = None
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

    def supervise(self, *children: Child | ChildPlan, policy: Policy = QUICK, **how: Any) -> None:
        plans = [one if isinstance(one, ChildPlan) else ChildPlan(one, policy) for one in children]
        self.supervisor = Supervisor(self.state, plans, **how)
        self.task = asyncio.create_task(self.supervisor.run())

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

        found: ChildRecord = await until(met, lambda: f"{what}; it is {self.child(name)}", 60)
        return found

    async def running(self, name: str, *, restarts: int = 0) -> ChildRecord:
        return await self.until(
            name,
            lambda child: child.state == "running" and child.restarts >= restarts,
            f"{name} runs after {restarts} restarts",
        )

    async def stop(self) -> None:
        assert self.supervisor is not None
        assert self.task is not None
        self.supervisor.stop()
        await self.task

    async def clean_up(self) -> None:
        if self.task is not None and not self.task.done():
            await self.stop()
        # A supervisor that was killed takes its children along, but not in the same instant.
        await until(
            lambda: not any(each.is_alive for each in self.seen),
            lambda: f"all gone, but {[each.pid for each in self.seen if each.is_alive]}",
            10,
        )


def pid_of(child: ChildRecord) -> int:
    assert child.pid is not None
    return child.pid
