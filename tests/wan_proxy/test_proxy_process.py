"""The proxy as a process of its own, and the words to it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from benchmarks.proxy_process.client import ControlError, ProxyControl, ProxyProcess
from benchmarks.proxy_process.control import ControlServer
from tests.wan_proxy.endpoints import Client, Target, eventually
from wan_proxy import (
    DSL_BRANCH,
    ISDN_64K,
    LineCondition,
    LineStatistics,
    WanProxy,
)

Connect = Callable[[int], Coroutine[Any, Any, Client]]


@pytest.fixture
async def control(proxy: WanProxy) -> AsyncIterator[ProxyControl]:
    server = ControlServer(proxy)
    port = await server.start()
    async with ProxyControl(port) as control:
        yield control
    await server.close()


async def test_every_word_reaches_the_line(
    proxy: WanProxy, control: ProxyControl, target: Target, connect: Connect
) -> None:
    port = await control.open_line("paris", "127.0.0.1", target.port, DSL_BRANCH)
    line = proxy.line("paris")
    assert (line.port, line.condition) == (port, DSL_BRANCH)
    await control.set("paris", "ISDN_64K")
    assert line.condition == ISDN_64K
    await control.set("paris", LineCondition.both_ways(delay_ms=1))
    assert line.condition.round_trip_ms == 2

    client = await connect(port)
    accepted = await target.connection()
    await control.cut("paris", "outward", new_connects="unanswered")
    described = await control.lines()
    assert described["paris"]["cut"]
    assert described["paris"]["target"] == f"127.0.0.1:{target.port}"
    await control.heal("paris")
    assert not line.is_cut
    client.write(b"hello")
    await eventually(lambda: accepted.received == b"hello", "hello")
    assert (await control.statistics("paris")) == line.statistics()

    await control.half_open("paris", "client")
    await eventually(lambda: accepted.end == "RST", "half open")
    await control.reset("paris")
    await eventually(lambda: client.end == "RST", "reset")
    second = await connect(port)
    await target.connection(1)
    await control.close("paris")
    await eventually(lambda: second.end == "FIN", "close")
    await control.end_line("paris")
    assert proxy.lines == {}


async def test_what_cannot_be_done_is_answered_with_what_to_give(control: ProxyControl) -> None:
    with pytest.raises(ControlError, match="use one of"):
        await control.cut("nowhere")
    await control.open_line("a", "127.0.0.1", 1)
    with pytest.raises(ControlError, match="use another"):
        await control.open_line("a", "127.0.0.1", 1)
    with pytest.raises(ControlError, match="NO_SUCH"):
        await control.set("a", "NO_SUCH")
    with pytest.raises(ControlError, match="use outward, inward or both"):
        await control.cut("a", "sideways")  # type: ignore[arg-type]
    with pytest.raises(ControlError, match="lacks 'line'"):
        await control._ask(do="heal")
    with pytest.raises(ControlError, match="see the table"):
        await control._ask(do="explode", line="a")


async def test_requests_that_are_no_json_are_answered_too(proxy: WanProxy) -> None:
    server = ControlServer(proxy)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    for nonsense in (b"heal!\n", b"[1]\n", b"\xff\n"):
        writer.write(nonsense)
        assert b'"error"' in await reader.readline()
    writer.close()
    await server.close()


async def test_the_process_serves_lines_and_ends_when_left(
    target: Target, connect: Connect
) -> None:
    async with ProxyProcess(seed=3) as process:
        port = await process.control.open_line("a", "127.0.0.1", target.port, "DSL_BRANCH")
        client = await connect(port)
        client.write(b"through another process")
        accepted = await target.connection()
        await eventually(lambda: accepted.received == b"through another process", "bytes")
        statistics = await process.control.statistics("a")
        assert isinstance(statistics, LineStatistics)
        assert statistics.outward.bytes_delivered == 23
        assert process.pid > 0
    await eventually(lambda: client.end is not None, "the connection ends with the process")


async def test_the_process_ends_when_its_stdin_does(target: Target) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.proxy_process", "--until-stdin-ends"),
        *("--line", f"a=127.0.0.1:{target.port},ISDN_64K"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert b'"a"' in await process.stdout.readline()
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0


@pytest.mark.parametrize("line", ["a", "a=127.0.0.1", "a=127.0.0.1:80,NO_SUCH", "a=h:99999"])
async def test_arguments_that_cannot_be_end_with_two_and_a_reason(line: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.proxy_process", "--line", line),
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert stderr.startswith(b"proxy_process: ")
    assert stderr.count(b"\n") == 1
