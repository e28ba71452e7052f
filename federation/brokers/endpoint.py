"""Endpoint of a broker's listener, and the endpoints of a name with several addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple

from federation.brokers.broker_uri import bracketed


class Endpoint(NamedTuple):
    """Host and port to connect to. `ip` is dialled instead of the host, whose name TLS still
    checks; empty if the name has a single address.
    """

    host: str
    port: int
    ip: str = ""

    def __str__(self) -> str:
        where = f"{bracketed(self.host)}:{self.port}"
        return f"{where} ({self.ip})" if self.ip else where

    @property
    def dialled(self) -> str:
        """Host that a socket is opened to."""
        return self.ip or self.host


async def resolved(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Resolve names: a name with several addresses becomes an endpoint for each of them.

    A name that cannot be resolved stays: the error comes from connecting to it.
    """
    found: dict[Endpoint, None] = {}
    for endpoint in endpoints:
        for address in await _addresses(endpoint):
            found.setdefault(address)
    return tuple(found)


async def _addresses(endpoint: Endpoint) -> list[Endpoint]:
    # Both loopback addresses are the same broker's.
    if endpoint.ip or endpoint.host == "localhost" or _is_ip(endpoint.host):
        return [endpoint]
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError:
        return [endpoint]
    ips = dict.fromkeys(str(answer[4][0]) for answer in answers)
    return [endpoint._replace(ip=ip) for ip in ips] if len(ips) > 1 else [endpoint]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
