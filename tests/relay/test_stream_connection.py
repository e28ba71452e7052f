"""The log's connection where a real broker would have to fail at just the right moment."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from relay.stream_connection import ConnectionClosedError, StreamAddress, StreamConnection


def test_between_the_socket_s_end_and_the_news_of_it_nothing_is_sent_and_nothing_breaks() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = StreamAddress("127.0.0.1", port, "/", "nobody", "")
        connection = StreamConnection(address, 10, "test")
        await connection.start()
        assert connection._conn is not None
        assert connection._conn._writer is not None
        connection._conn._writer.transport.abort()
        await asyncio.sleep(0)
        connection.write(b"lost")
        with pytest.raises(ConnectionClosedError):
            await connection.goodbye()
        connection.abort("over")
        await connection.ended()
        server.close()

    uvloop.run(main())  # whose transports, unlike asyncio's, raise for a write after their end
