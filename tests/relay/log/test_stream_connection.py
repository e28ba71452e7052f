"""The log's connection where a real broker would have to fail at just the right moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import uvloop
from rstream import exceptions, schema
from rstream.client import Client

from federation.brokers.addresses import StreamAddress
from relay.log.rabbit.leader_connection import open_connection
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.rabbit.stream_connection import (
    ConnectionClosedError,
    StreamConnection,
    answer_or_cancelled,
)
from relay.log.site_log import LogClosed, LogMissing
from tests.live_brokers import Vhost
from tests.virtual_time import in_virtual_time, let_pass
from tests.waiting import until
from wan_proxy import WanProxy


class MuteBroker:
    """Takes connections and says nothing; counts those that came and those that are gone."""

    def __init__(self) -> None:
        self.came = 0
        self.gone = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[StreamAddress]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield StreamAddress("127.0.0.1", server.sockets[0].getsockname()[1], "/", "nobody", "")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        self.gone += 1
        writer.close()


def test_between_the_socket_s_end_and_the_news_of_it_nothing_is_sent_and_nothing_breaks() -> None:
    async def main() -> None:
        # A server that kept nothing of the connection would end it, when what it has is collected.
        async with MuteBroker().serving() as address:
            connection = StreamConnection(address, 10, "test")
            await connection.start()
            transport = connection._transport()
            assert transport is not None
            transport.abort()
            await asyncio.sleep(0)
            connection.write(b"lost")
            with pytest.raises(ConnectionClosedError):
                await connection.goodbye()
            connection.abort("over")
            await connection.ended()

    uvloop.run(main())  # whose transports, unlike asyncio's, raise for a write after their end


def test_heartbeats_go_out_and_no_silence_is_reported_of_a_broker_that_is_heard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[schema.Frame] = []

    async def send(_: StreamConnection, frame: schema.Frame, version: int = 1) -> None:
        sent.append(frame)

    @in_virtual_time
    async def main() -> None:
        connection = StreamConnection(StreamAddress("127.0.0.1", 1, "/", "nobody", ""), 10, "test")
        connection.start_task("heartbeats", connection._heartbeat_sender())
        await let_pass(35)
        connection.abort("over")

    monkeypatch.setattr(StreamConnection, "send_frame", send)
    main()
    assert [type(frame) for frame in sent] == [schema.Heartbeat] * 4
    assert not caplog.text


async def test_an_opening_that_is_cancelled_or_too_late_leaves_no_connection() -> None:
    broker = MuteBroker()
    async with broker.serving() as address:

        def opening(deadline_s: float) -> asyncio.Task[StreamConnection]:
            return asyncio.create_task(
                open_connection(address, "log", heartbeat_s=10, name="test", deadline_s=deadline_s)
            )

        cancelled = opening(60.0)
        await until(lambda: broker.came == 1, "the connection", 10)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await until(lambda: broker.gone == 1, "the end of the cancelled one", 10)
        with pytest.raises(LogClosed, match="no answer in time"):
            await opening(0.2)
        await until(lambda: broker.gone == broker.came == 2, "the end of the late one", 10)


async def test_a_cancel_that_comes_with_the_answer_is_not_forgotten() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def asked_as_rstream_does() -> int:
        return await asyncio.wait_for(answer, 60)

    task = asyncio.create_task(answer_or_cancelled(asked_as_rstream_does()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    answer.set_result(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.live
async def test_a_stream_whose_deletion_takes_its_time_is_missing_in_the_end(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vhost.api(
        "PUT", "/queues/{vhost}/log", {"durable": True, "arguments": {"x-queue-type": "stream"}}
    )
    address = StreamAddress(vhost.host, vhost.stream_port, vhost.name, vhost.user, vhost.password)
    log = await open_rabbit_log(address, "log", mark_name="deliverer")
    asked = Client.stream_exists
    first_answers = [True, exceptions.StreamNotAvailable()]

    async def stream_exists(client: Client, stream: str) -> bool:
        if not first_answers:
            return await asked(client, stream)
        answer = first_answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Client, "stream_exists", stream_exists)
    await vhost.api("DELETE", "/queues/{vhost}/log")
    await asyncio.wait_for(asyncio.shield(log.closed), 10)
    with pytest.raises(LogMissing):
        await log.append([b"x"])
    assert not first_answers
    await log.close()


async def test_a_broker_of_which_nothing_is_heard_any_more_ends_all_that_waits_for_it(
    vhost: Vhost,
) -> None:
    # A line that falls silent: TCP would not say so for a quarter of an hour.
    await vhost.api(
        "PUT", "/queues/{vhost}/log", {"durable": True, "arguments": {"x-queue-type": "stream"}}
    )
    async with WanProxy() as proxy:
        line = await proxy.open_line("log", vhost.host, vhost.stream_port)
        address = StreamAddress(line.host, line.port, vhost.name, vhost.user, vhost.password)
        log = await open_rabbit_log(address, "log", mark_name="mark", heartbeat_s=1)
        await log.append([b"a"])
        cursor = await log.read(0)
        assert [record.data for record in await cursor.next()] == [b"a"]
        line.cut()
        waiting = [log.append([b"b"]), cursor.next(), log.load_mark(), log.closed]
        async with asyncio.timeout(30):
            *ended, reason = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in ended] == [LogClosed] * 3
        assert reason == "nothing heard for 2 s"
        await log.close()
