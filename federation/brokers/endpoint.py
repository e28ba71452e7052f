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


async def resolved(places: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Resolve names: a name with several addresses becomes an endpoint for each of them.

    A name that cannot be resolved stays: the error comes from connecting to it.
    """
    found: dict[Endpoint, None] = {}
    for place in places:
        for one in await _addresses(place):
            found.setdefault(one)
    return tuple(found)


async def _addresses(place: Endpoint) -> list[Endpoint]:
    # Both loopback addresses are the same broker's.
    if place.ip or place.host == "localhost" or _is_ip(place.host):
        return [place]
    loop = asyncio.get_running_loop()
    try:
        answers = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError:
        return [place]
    ips = dict.fromkeys(str(answer[4][0]) for answer in answers)
    return [place._replace(ip=ip) for ip in ips] if len(ips) > 1 else [place]


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
