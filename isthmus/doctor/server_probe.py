"""Questions that ZooKeeper and Cassandra answer without a login, one connection each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from federation.brokers.broker_uri import parse_host_port
from federation.brokers.tls_refusals import tls_refusal
from isthmus.doctor.server_facts import ServerAnswer

WITHIN_S = 2.0

_SERVER = b"srvr"
"""ZooKeeper's word, the only one that it answers unless its configuration says otherwise."""
_NO_MAJORITY = b"not currently serving requests"
_OPTIONS = bytes((4, 0, 0, 0, 5, 0, 0, 0, 0))
"""Cassandra's frame without a body: version, flags, stream (two), opcode OPTIONS, length (four)."""
_SUPPORTED = 6
_HEADER_BYTES = 9


async def ask_member(
    address: str, tls: ssl.SSLContext | None, within_s: float = WITHIN_S
) -> ServerAnswer:
    """Ask a member of an ensemble whether it serves. One that refuses the word answers, too."""
    said = await _asked(address, tls, _SERVER, lambda reader: reader.read(), within_s)
    if isinstance(said, ServerAnswer):
        return said
    return ServerAnswer(address, serves=_NO_MAJORITY not in said)


async def ask_cassandra(
    address: str, tls: ssl.SSLContext | None, within_s: float = WITHIN_S
) -> ServerAnswer:
    """Ask a host of Cassandra which options it has."""
    said = await _asked(
        address, tls, _OPTIONS, lambda reader: reader.readexactly(_HEADER_BYTES), within_s
    )
    if isinstance(said, ServerAnswer):
        return said
    is_cassandra = said[4] == _SUPPORTED
    return ServerAnswer(address, "" if is_cassandra else "what answers there is no Cassandra")


async def _asked(
    address: str,
    tls: ssl.SSLContext | None,
    question: bytes,
    read: Callable[[asyncio.StreamReader], Awaitable[bytes]],
    within_s: float,
) -> bytes | ServerAnswer:
    """Return the answer's bytes, or the reason why there are none."""
    host, port = parse_host_port(address)
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                writer.write(question)
                if said := await read(reader):
                    return said
            finally:
                writer.transport.abort()  # a close over TLS would wait for the other side's
        why = tls_refusal(None, tls)
    except TimeoutError:
        why = f"no answer within {within_s:g} s"
    except (OSError, EOFError) as error:
        why = tls_refusal(error, tls) or (str(error) if isinstance(error, OSError) else "")
    return ServerAnswer(
        address, why or "it ends the connection without an answer: perhaps it wants TLS"
    )
