"""Facts of this machine's network interfaces, as Linux shows them."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 256
_ADDRESS = slice(20, 24)
"""Place of the IPv4 address in the answer."""
INTERFACES = Path("/sys/class/net")
ADDRESSES_6 = Path("/proc/net/if_inet6")


@dataclass(frozen=True, slots=True)
class InterfaceFacts:
    """Network interface; what is not known of it is None."""

    name: str
    mtu: int | None = None
    """Most bytes of an IP packet."""
    speed: int | None = None
    """Bits a second."""


def address_towards(host: str, port: int) -> str:
    """Return the own address from which the machine's routes send to a host. Raises OSError."""
    family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # sends nothing
        return str(probe.getsockname()[0])


def interface_with(address: str) -> InterfaceFacts | None:
    """Return the interface that has the address; None if none is known to."""
    own = ip_address(address.partition("%")[0])
    name = _name_4(own) if isinstance(own, IPv4Address) else _name_6(own)
    return None if name is None else facts_of(name)


def facts_of(name: str) -> InterfaceFacts:
    """Return the facts of an interface, as far as the kernel gives them."""
    mtu, megabits = (_number(INTERFACES / name / one) for one in ("mtu", "speed"))
    # -1: the driver does not know.
    known = megabits is not None and megabits > 0
    return InterfaceFacts(name, mtu, megabits * 10**6 if known and megabits is not None else None)


def _name_4(address: IPv4Address) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                asked = struct.pack(f"{_NAME_BYTES}s", name.encode())
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)
            except OSError:
                continue  # an interface without an IPv4 address
            if IPv4Address(answer[_ADDRESS]) == address:
                return name
    return None


def _name_6(address: IPv6Address) -> str | None:
    try:
        lines = ADDRESSES_6.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        digits, *_, name = line.split()
        if IPv6Address(bytes.fromhex(digits)) == address:
            return name
    return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
