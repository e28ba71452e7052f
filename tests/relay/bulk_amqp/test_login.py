"""Logins to a scripted peer: what both agree on, and every way in which it fails."""

from __future__ import annotations

import asyncio
import gc

import pytest
from pamqp import commands

from relay.bulk_amqp import AuthenticationFailed, ConnectionFailed, connect
from tests.relay.bulk_amqp import wire
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker, forever


async def test_a_login_agrees_on_the_smaller_of_both_limits() -> None:
    seen: list[Client] = []

    async def script(client: Client) -> None:
        await client.log_in(heartbeat=60, frame_max=8192)
        seen.append(client)
        await forever()

    async with fake_broker(script) as uri:
        connection = await connect(uri, heartbeat=7, frame_max=131072)
        assert (connection.heartbeat, connection.frame_max) == (7, 8192)
        assert (seen[0].tune.heartbeat, seen[0].tune.frame_max) == (7, 8192)
        assert seen[0].tune.channel_max == 100


async def greeted_with(data: bytes, client: Client) -> None:
    await client.reader.readexactly(8)
    client.writer.write(data)
    await client.reader.read()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        wire.method(0, commands.Connection.Tune(1, 4096, 1)),
        wire.method(0, commands.Connection.Start(mechanisms="EXTERNAL", server_properties={})),
        wire.method(1, commands.Channel.CloseOk()),
    ],
)
async def test_a_peer_that_does_not_speak_as_a_broker_should_fails_the_login(data: bytes) -> None:
    async with fake_broker(lambda client: greeted_with(data, client)) as uri:
        with pytest.raises(ConnectionFailed, match=r"amqp://user@127\.0\.0\.1"):
            await connect(uri, timeout=5)


async def test_a_peer_that_hangs_up_during_the_login_fails_it() -> None:
    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed) as failed:
            await connect(uri, timeout=5)
    assert "secret" not in str(failed.value)


async def test_a_peer_that_never_answers_fails_the_login_in_time() -> None:
    left = asyncio.Event()

    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        assert await client.reader.read() == b""
        left.set()

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.2 s"):
            await connect(uri, timeout=0.2)
        await asyncio.wait_for(left.wait(), 5)


async def test_a_login_that_is_cancelled_leaves_no_socket_behind() -> None:
    greeted, left = asyncio.Event(), asyncio.Event()

    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        greeted.set()
        assert await client.reader.read() == b""
        left.set()

    async with fake_broker(script) as uri:
        login = asyncio.ensure_future(connect(uri))
        await asyncio.wait_for(greeted.wait(), 5)
        login.cancel()
        with pytest.raises(asyncio.CancelledError):
            await login
        await asyncio.wait_for(left.wait(), 5)


async def test_nobody_there_is_a_failed_connection() -> None:
    async with fake_broker(lambda client: forever()) as uri:
        pass
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        await connect(uri, timeout=5)


@pytest.mark.parametrize(
    ("code", "error"),
    [(403, AuthenticationFailed), (530, AuthenticationFailed), (541, ConnectionFailed)],
)
async def test_a_refusal_during_the_login_says_why(code: int, error: type[Exception]) -> None:
    async def script(client: Client) -> None:
        await client.greet()
        await client.expect(commands.Connection.StartOk)
        client.send(0, commands.Connection.Close(code, "REFUSED", 0, 0))
        await client.expect(commands.Connection.CloseOk)

    async with fake_broker(script) as uri:
        with pytest.raises(error, match="REFUSED") as refused:
            await connect(uri, timeout=5)
    assert type(refused.value) is error
    assert refused.value.code == code  # type: ignore[attr-defined]


async def test_no_failure_is_left_for_the_garbage_collector() -> None:
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

    async def script(client: Client) -> None:
        await client.greet()

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed):
            await connect(uri, timeout=5)
    gc.collect()
    await asyncio.sleep(0)
    assert told == []
