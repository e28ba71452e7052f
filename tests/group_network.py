"""Network of this machine's own for a multicast group: an interface a site, all on one bridge."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SETTINGS = Path("/proc/sys/net/ipv4/conf")
_HEARS_OWN_MACHINE = {"accept_local": "1", "rp_filter": "0"}


@dataclass(frozen=True, slots=True)
class GroupNetwork:
    """Interfaces by name, with the address of each. What goes out at any comes to all others."""

    addresses: dict[str, str]

    def set_deaf(self, *addresses: str) -> None:
        """Let nothing come to these any more; what they send still goes out."""
        self._flood(addresses, "off")

    def set_hearing(self, *addresses: str) -> None:
        """Let everything come to these again."""
        self._flood(addresses, "on")

    def sent_bytes(self, address: str) -> int:
        """Return the bytes that have gone out at an interface, heads of frames included."""
        return int(Path(f"/sys/class/net/{self._name(address)}/statistics/tx_bytes").read_text())

    def _flood(self, addresses: tuple[str, ...], word: str) -> None:
        for address in addresses:
            _run("bridge", "link", "set", "dev", _port(self._name(address)), "mcast_flood", word)

    def _name(self, address: str) -> str:
        return next(name for name, its in self.addresses.items() if its == address)


@contextlib.contextmanager
def group_network(count: int) -> Iterator[GroupNetwork]:
    """Make a network of so many interfaces, as root; remove it when the block ends."""
    number = os.getpid()
    bridge = f"ig{number}"
    made: list[str] = []
    addresses: dict[str, str] = {}
    try:
        _run("ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
        made.append(bridge)
        _run("ip", "link", "set", bridge, "up")
        for nth in range(count):
            name = f"{bridge}n{nth}"
            addresses[name] = f"10.{100 + (number >> 8) % 100}.{number % 256}.{nth + 1}"
            _run("ip", "link", "add", name, "type", "veth", "peer", "name", _port(name))
            made.append(name)
            _run("ip", "address", "add", f"{addresses[name]}/24", "dev", name)
            _run("ip", "link", "set", _port(name), "master", bridge)
            for end in (name, _port(name)):
                _run("ip", "link", "set", end, "up")
            for setting, value in _HEARS_OWN_MACHINE.items():
                (_SETTINGS / name / setting).write_text(value)
        yield GroupNetwork(addresses)
    finally:
        for name in reversed(made):
            _run("ip", "link", "delete", name)


def free_udp_port() -> int:
    """Return the number of a UDP port that nobody uses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _port(name: str) -> str:
    """Return the name of the interface's other end, at the bridge."""
    return f"{name}p"


def _run(*words: str) -> None:
    subprocess.run(words, check=True)
