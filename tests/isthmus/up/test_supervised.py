"""What is supervised: a site's node, its log and its last words; a real broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from isthmus import processes
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.up.supervised import BrokerProcess, last_line, rotate
from isthmus.up.supervision import Policy
from isthmus.up.supervisor import ChildPlan
from tests.isthmus.supervisor_bench import Bench, pid_of


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


@pytest.mark.long
async def test_a_broker_that_dies_or_hangs_is_replaced_and_ended_while_it_starts(
    bench: Bench, local_broker_factory: Callable[..., Awaitable[LocalBroker]]
) -> None:
    broker = await local_broker_factory("paris", start=False)
    patient = Policy(check_every_s=0.2, failed_checks=2, first_wait_s=0.05)
    bench.supervise(ChildPlan(BrokerProcess(broker, check_limit_s=1.5), patient))
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
