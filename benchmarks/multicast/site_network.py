"""Network of the sites of a measurement: a namespace a site, and datagrams that get lost.

A site's node lives in a network namespace with two interfaces. `lan` leads to the one broker, which
has a virtual host a site: what goes there stays within the site. `wan` is the site's line: what the
node sends to the group, and to other sites' brokers, by another address of the broker. Both bridges
are in the namespace of the caller, who is root.

Each receiver loses packets of its own, of UDP and TCP alike: a site's namespace drops what comes in
by `wan`, and the caller's what comes to the broker from the lines. Packets are as long as the MTU
says: without segmentation offload a loss is of one segment, and not of 64 KiB.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAN = "wan"
_BROKERS_HOST = 254
_LOSSES = 1000
"""Parts of the whole in which a loss is told to nft."""
_STATISTICS = "/sys/class/net/{}/statistics/{}"


class SiteNetwork:
    """Namespaces of `count` sites, numbered from 0. `broker` is the broker's address for the site
    itself, `broker_by_lines` for other sites, by way of their lines.
    """

    def __init__(self, count: int) -> None:
        number = os.getpid()
        self.count = count
        self._name = f"im{number}"
        self._lan, self._wan = (
            f"10.{part + number // 250 % 50}.{number % 250}" for part in (150, 200)
        )
        self.broker = f"{self._lan}.{_BROKERS_HOST}"
        self.broker_by_lines = f"{self._wan}.{_BROKERS_HOST}"

    def address(self, site: int) -> str:
        """Return the address of a site's line."""
        return f"{self._wan}.{site + 1}"

    def inside(self, site: int) -> tuple[str, ...]:
        """Return the beginning of a command that runs in a site's namespace."""
        return ("nsenter", f"--net=/run/netns/{self._namespace(site)}")

    def sent_bytes(self, site: int) -> int:
        """Return the bytes that a site's node has sent over its line, heads of frames included."""
        return self._counter(f"{self._name}w{site}", "rx_bytes")

    def sent_by_brokers(self) -> int:
        """Return the bytes that the broker has sent over lines, for whichever site."""
        return self._counter(f"{self._name}w", "tx_bytes")

    def lose(self, fraction: float) -> None:
        """Let each receiver lose this part of all packets from now on."""
        part = lost_part(fraction)
        for site in range(self.count):
            _nft(_drops(self._name, WAN, part), *self.inside(site))
        _nft(_drops(self._name, f"{self._name}w", part))

    def reach_broker(self, port: int) -> None:
        """Lead what comes by the lines to a port of the broker to where the broker listens."""
        _nft(
            f"table ip {self._name}nat {{ chain lines {{\n"
            "type nat hook prerouting priority dstnat;\n"
            f"ip daddr {self.broker_by_lines} tcp dport {port} dnat to {self.broker}\n}}\n}}"
        )

    def make(self) -> None:
        """Make all interfaces and namespaces."""
        lines = []
        for bridge, net in ((f"{self._name}l", self._lan), (f"{self._name}w", self._wan)):
            lines += [
                f"link add {bridge} type bridge mcast_snooping 0",
                f"address add {net}.{_BROKERS_HOST}/24 dev {bridge}",
                f"link set {bridge} gso_max_segs 1 up",
            ]
        for site in range(self.count):
            name = self._namespace(site)
            lines.append(f"netns add {name}")
            for kind in ("lan", WAN):
                bridge = f"{self._name}{kind[0]}"
                outer = f"{bridge}{site}"
                lines += [
                    f"link add {outer} type veth peer name {kind} netns {name}",
                    f"link set {outer} master {bridge}",
                    f"link set {outer} gso_max_segs 1 up",
                ]
        _ip(lines)
        for site in range(self.count):
            for word in ("all", "default"):
                self._write(site, f"net/ipv6/conf/{word}/disable_ipv6")
            inner = ["link set lo up"]
            for kind, net in (("lan", self._lan), (WAN, self._wan)):
                inner += [
                    f"address add {net}.{site + 1}/24 dev {kind}",
                    f"link set {kind} gso_max_segs 1 up",
                ]
            _ip(inner, "-n", self._namespace(site))

    def take_down(self) -> None:
        """Remove all that was made, as far as it is there."""
        for kind in (f"ip {self._name}nat", f"inet {self._name}"):
            subprocess.run(
                ("nft", "delete", "table", *kind.split()), check=False, stderr=subprocess.DEVNULL
            )
        for site in range(self.count):
            name = self._namespace(site)
            subprocess.run(("ip", "netns", "delete", name), check=False, stderr=subprocess.DEVNULL)
        for kind in ("l", "w"):
            bridge = f"{self._name}{kind}"
            subprocess.run(("ip", "link", "delete", bridge), check=False, stderr=subprocess.DEVNULL)

    def _write(self, site: int, setting: str) -> None:
        command = (*self.inside(site), "sh", "-c", f"echo 1 >/proc/sys/{setting}")
        subprocess.run(command, check=True)

    def _namespace(self, site: int) -> str:
        return f"{self._name}s{site}"

    def _counter(self, interface: str, which: str) -> int:
        return int(Path(_STATISTICS.format(interface, which)).read_text())


@contextmanager
def site_network(count: int) -> Iterator[SiteNetwork]:
    """Make a network, as root; remove it when the block ends."""
    if os.geteuid() != 0:
        raise PermissionError("network namespaces are for root")
    network = SiteNetwork(count)
    try:
        network.make()
        yield network
    finally:
        network.take_down()


def lost_part(fraction: float) -> int:
    """Return a loss in thousandths. Raises ValueError for a loss that has more digits."""
    part = round(fraction * _LOSSES)
    if not 0 <= part < _LOSSES or abs(part - fraction * _LOSSES) > 1e-6:
        raise ValueError(f"a loss of {fraction} is no whole number of thousandths")
    return part


def _drops(table: str, interface: str, part: int) -> str:
    """Return commands of nft by which a table that loses this part takes a former one's place."""
    rule = f'iifname "{interface}" numgen random mod {_LOSSES} < {part} drop' if part else ""
    return (
        f"table inet {table}\ndelete table inet {table}\n"
        f"table inet {table} {{ chain lines {{\n"
        f"type filter hook input priority 0; policy accept;\n{rule}\n}}\n}}"
    )


def _nft(commands: str, *inside: str) -> None:
    subprocess.run((*inside, "nft", "-f", "-"), input=commands.encode(), check=True)


def _ip(lines: list[str], *options: str) -> None:
    subprocess.run(("ip", *options, "-batch", "-"), input="\n".join(lines).encode(), check=True)
