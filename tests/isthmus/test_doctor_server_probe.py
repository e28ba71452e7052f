"""Questions that `isthmus doctor` puts to servers without a login."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from isthmus.doctor.server_facts import ServerAnswer
from isthmus.doctor.server_probe import ask_cassandra, ask_member

SUPPORTED = bytes((0x84, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0))
SERVES = b"Zookeeper version: 3.9.4\nMode: follower\n"
NO_MAJORITY = b"This ZooKeeper instance is not currently serving requests\n"
NO_SUCH_WORD = b"srvr is not executed because it is not in the whitelist.\n"
Serve = Callable[[bytes | None], "asyncio.Future[str]"]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Call with an answer for the address of a server that gives it and ends the connection; None:
    it never answers.
    """
    async with AsyncExitStack() as servers:

        async def start(answer: bytes | None) -> str:
            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if answer is None:
                    await reader.read()
                else:
                    await reader.read(4)
                    writer.write(answer)
                writer.close()

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            servers.callback(server.close)
            return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield lambda answer: asyncio.ensure_future(start(answer))


@pytest.mark.parametrize(
    ("answer", "serves"), [(SERVES, True), (NO_MAJORITY, False), (NO_SUCH_WORD, True)]
)
async def test_a_member_says_whether_it_serves(serve: Serve, answer: bytes, serves: bool) -> None:
    address = await serve(answer)
    assert await ask_member(address, None) == ServerAnswer(address, serves=serves)


async def test_cassandra_is_known_by_its_options(serve: Serve) -> None:
    address, other = await serve(SUPPORTED), await serve(b"HTTP/1.1 400 Bad Request")
    assert await ask_cassandra(address, None) == ServerAnswer(address)
    assert (await ask_cassandra(other, None)).why_not == "what answers there is no Cassandra"


@pytest.mark.parametrize("ask", [ask_member, ask_cassandra])
async def test_a_server_that_does_not_answer_has_its_reason(
    serve: Serve, ask: Callable[..., asyncio.Future[ServerAnswer]]
) -> None:
    frozen = await ask(await serve(None), None, 0.1)
    assert frozen.why_not == "no answer within 0.1 s"
    silent = await ask(await serve(b""), None)
    assert silent.why_not == "it ends the connection without an answer: perhaps it wants TLS"
    nobody = await ask("127.0.0.1:1", None)
    assert "Connect call failed" in nobody.why_not
