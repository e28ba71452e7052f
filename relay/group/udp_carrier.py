"""Group as an IP multicast group, by UDP."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
import sys
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from relay.group.carrier import GroupUnreachable, OnDatagram

MOST_BYTES = 65_536
_AT_ONCE = 64
"""Datagrams taken in one turn of the event loop, which has other work."""
_BUFFER_BYTES = 8 * 1024 * 1024
_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a datagram that found no room: lost, as on any line."""
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29
"""Options of Linux that `socket` has no name for: hear groups that other sockets have joined."""
_INTERFACES = Path("/proc/net/if_inet6")


class UdpCarrier:
    """Membership of the group at `address`, `port`. `interface` is the address of the interface to
    use; empty: the machine's routes decide. So many routers pass a datagram on as `ttl` says.
    Raises GroupUnreachable.
    """

    def __init__(self, address: str, port: int, *, interface: str = "", ttl: int = 1) -> None:
        self._to: tuple[str | int, ...] = (address, port)
        group = ip_address(address)
        family = socket.AF_INET if group.version == 4 else socket.AF_INET6
        try:
            self._socket = socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            raise GroupUnreachable(f"{address} is not to be joined: {error}") from error
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            if isinstance(group, IPv4Address):
                self._join_4(group, interface, ttl)
            else:
                self._join_6(group, interface, ttl)
            # At this address alone: other groups' datagrams to the port are not for this socket.
            self._socket.bind(self._to)
        except (OSError, ValueError) as error:
            self._socket.close()
            raise GroupUnreachable(f"{address} is not to be joined: {error}") from error
        self._loop = asyncio.get_running_loop()
        self._is_listening = False

    def _join_4(self, group: IPv4Address, interface: str, ttl: int) -> None:
        set_option = self._socket.setsockopt
        own = IPv4Address(interface or "0.0.0.0")
        set_option(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + own.packed)
        if interface:
            set_option(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, own.packed)
        set_option(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        if sys.platform == "linux":
            set_option(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
        # Sites of one machine are to hear each other.
        set_option(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)

    def _join_6(self, group: IPv6Address, interface: str, ttl: int) -> None:
        set_option = self._socket.setsockopt
        index = _interface_index(IPv6Address(interface)) if interface else 0
        self._to = (*self._to, 0, index)
        joined = group.packed + struct.pack("@I", index)
        set_option(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)
        if interface:
            set_option(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        set_option(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, ttl)
        if sys.platform == "linux":
            set_option(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        set_option(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of datagrams that wait while the node has other work; the kernel drops the rest."""
        # Linux reports twice the bytes that it was given, for what it keeps beside them.
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2

    def listen(self, on_datagram: OnDatagram) -> None:
        self._loop.add_reader(self._socket, self._read, on_datagram)
        self._is_listening = True

    def _read(self, on_datagram: Callable[[bytes], None]) -> None:
        # An error is of a datagram that was sent before: the next one may come through.
        with contextlib.suppress(OSError):
            for _ in range(_AT_ONCE):
                on_datagram(self._socket.recv(MOST_BYTES))
                if not self._is_listening:
                    return

    def send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._to)
        except OSError as error:
            if error.errno not in _FULL:
                raise GroupUnreachable(
                    f"nothing is to be sent to {self._to[0]}: {error}"
                ) from error

    def close(self) -> None:
        if self._is_listening:
            self._loop.remove_reader(self._socket)
            self._is_listening = False
        self._socket.close()


def _interface_index(address: IPv6Address) -> int:
    """Return the index of the interface with an address. Raises ValueError if there is none."""
    for line in _INTERFACES.read_text().splitlines():
        digits, index, *_ = line.split()
        if IPv6Address(bytes.fromhex(digits)) == address:
            return int(index, 16)
    raise ValueError(f"no interface has the address {address}")
