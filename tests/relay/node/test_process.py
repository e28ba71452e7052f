"""What a process tells systemd, over a real socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from dedup.store import StoreLocked
from relay.node.node import SiteNode
from relay.node.process import ANNOUNCED, RelayProcess, ServiceManager, only_process
from relay.node.stage_order import EndedBadly
from tests.virtual_time import in_virtual_time
from tests.waiting import until

PID = 4711


@asynccontextmanager
async def listening(address: str) -> AsyncIterator[list[str]]:
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.setblocking(False)
        ear.bind(address)
        loop = asyncio.get_running_loop()
        loop.add_reader(ear, lambda: told.append(ear.recv(65536).decode()))
        yield told
        loop.remove_reader(ear)


def environ(address: str, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": address.replace("\0", "@"), **more}


@pytest.mark.parametrize("abstract", [False, True])
async def test_it_says_ready_then_signs_of_life_with_the_summary_then_stopping(
    tmp_path: Path, abstract: bool
) -> None:
    address = f"\0{tmp_path}/notify" if abstract else str(tmp_path / "notify")
    async with listening(address) as told:
        manager = ServiceManager(
            environ(address, WATCHDOG_USEC="300000", WATCHDOG_PID=str(PID)), PID, lambda: "paris up"
        )
        assert manager.watchdog_s == 0.3
        task = asyncio.create_task(manager.run())
        await until(lambda: len(told) >= 3, lambda: str(told), 10)
        assert told[:3] == ["READY=1", *["WATCHDOG=1\nSTATUS=paris up"] * 2]
        task.cancel()
        manager.stopping()
        await until(lambda: told[-1] == "STOPPING=1", lambda: str(told), 10)
        manager.close()


@pytest.mark.parametrize("told", [{}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
async def test_without_systemd_nothing_is_said_and_nothing_expected(told: dict[str, str]) -> None:
    manager = ServiceManager(told, PID, lambda: "")
    assert manager.watchdog_s is None
    async with asyncio.timeout(10):
        await manager.run()  # ends at once
    manager.stopping()
    manager.close()


async def test_a_service_manager_that_is_away_harms_nobody(tmp_path: Path) -> None:
    manager = ServiceManager(environ(str(tmp_path / "nobody")), PID, lambda: "")
    task = asyncio.create_task(manager.run())
    async with listening(str(tmp_path / "nobody")) as told:
        manager.stopping()
        await until(lambda: "STOPPING=1" in told, lambda: str(told), 10)
    assert not task.done()
    task.cancel()
    manager.close()


@in_virtual_time
async def test_a_slot_that_ends_badly_as_it_is_given_away_begins_again_beside_the_others(
    tmp_path: Path,
) -> None:
    class Slot:
        """A node's slot that ends badly twice, and then is stopped."""

        label, site, folder = "paris slot 3", "paris", tmp_path
        copy_report, is_begun, runs = dict, asyncio.Event(), 0
        is_to_end = was_taken_out = False

        async def run(self) -> None:
            Slot.runs += 1
            if Slot.runs < 3:
                raise EndedBadly("deliverer: it was cut off")

    slot = Slot()
    process = RelayProcess([cast(SiteNode, slot)])
    await process._run_node(cast(SiteNode, slot))
    assert Slot.runs == 3
    assert process.ended_badly == {}
    Slot.runs, Slot.copy_report = 0, None  # type: ignore[assignment]
    with pytest.raises(EndedBadly):
        await process._run_node(cast(SiteNode, slot))


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with only_process(tmp_path):
        (tmp_path / ANNOUNCED).write_text(json.dumps({"pid": os.getpid(), "admin_port": 1}))
        refused = pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}")
        with refused, only_process(tmp_path):
            pass
    with only_process(tmp_path):
        pass


@pytest.mark.parametrize("said", ["", "[]", '{"pid": "x"}'])
def test_who_has_it_may_not_be_known(tmp_path: Path, said: str) -> None:
    (tmp_path / ANNOUNCED).write_text(said)
    refused = pytest.raises(StoreLocked, match="in use by another process")
    with only_process(tmp_path), refused, only_process(tmp_path):
        pass
