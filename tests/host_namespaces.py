"""Network namespaces that stand for hosts: one for each node of a cluster, on one bridge.

The caller's namespace is on that bridge too, so that a test reaches every host whatever is cut
between the hosts. A cut is silent, as a dead line is: what is sent arrives nowhere. Needs root.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterable
from types import TracebackType
from typing import Self

_numbers = itertools.count()
_NOWHERE = "02:00:00:00:00:00"


class HostNamespaces:
    """`count` hosts, made on entry and taken down on exit; numbered from 0."""

    def __init__(self, count: int) -> None:
        # The kernel takes a namespace down some time after its end: names are never used again.
        own = os.getpid() * 20 + next(_numbers)
        self._prefix = f"i{own}"
        self._net = f"10.{own // 250 % 250 + 1}.{own % 250 + 1}"
        self.count = count

    def name(self, host: int) -> str:
        """The namespace's name, for `ip netns exec`."""
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        """The host's address."""
        return f"{self._net}.{host + 1}"

    def __enter__(self) -> Self:
        if os.geteuid() != 0:
            raise PermissionError("network namespaces are for root: run this by sudo")
        bridge = f"{self._prefix}b"
        try:
            _run(f"ip link add {bridge} type bridge")
            _run(f"ip addr add {self._net}.254/24 dev {bridge}")
            _run(f"ip link set {bridge} up")
            for host in range(self.count):
                self._add(host, bridge)
        except subprocess.CalledProcessError:
            self._take_down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._take_down()

    def isolate(self, host: int) -> None:
        """Cut one host off from all others."""
        self.cut([host], [other for other in range(self.count) if other != host])

    def cut(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Let nothing pass between these hosts and those, in either direction."""
        for here, there in _pairs(some, others):
            _run(
                f"ip netns exec {self.name(here)} ip neigh replace {self.address(there)} "
                f"lladdr {_NOWHERE} dev eth0 nud permanent"
            )

    def heal(self) -> None:
        """Let everything pass again."""
        for here, there in _pairs(range(self.count), range(self.count)):
            subprocess.run(
                f"ip netns exec {self.name(here)} ip neigh del {self.address(there)} dev eth0",
                shell=True,
                check=False,
                stderr=subprocess.DEVNULL,
            )

    def _add(self, host: int, bridge: str) -> None:
        name, outer = self.name(host), f"{self._prefix}v{host}"
        inside = f"ip netns exec {name} ip"
        _run(f"ip netns add {name}")
        _run(f"ip link add {outer} type veth peer name eth0 netns {name}")
        _run(f"ip link set {outer} master {bridge} up")
        _run(f"{inside} link set lo up")
        _run(f"{inside} addr add {self.address(host)}/24 dev eth0")
        _run(f"{inside} link set eth0 up")

    def _take_down(self) -> None:
        hosts = range(self.count)
        names = [f"netns del {self.name(host)}" for host in hosts]
        lines = [f"link del {self._prefix}v{host}" for host in hosts]
        for each in (*lines, *names, f"link del {self._prefix}b"):
            subprocess.run(f"ip {each}", shell=True, check=False, stderr=subprocess.DEVNULL)


def _pairs(some: Iterable[int], others: Iterable[int]) -> set[tuple[int, int]]:
    pairs = {(one, other) for one in some for other in list(others) if one != other}
    return pairs | {(other, one) for one, other in pairs}


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True, capture_output=True)
