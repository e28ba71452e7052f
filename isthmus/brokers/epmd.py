"""The Erlang port mapper of one private broker, or of all brokers of a cluster.

Nodes of a cluster find each other by one port mapper, which has to outlive each of them. Whichever
broker starts first spawns the process; whichever ends last ends the process.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable


class Epmd:
    """One port mapper, and the brokers that use it. Each broker's `user` is a name of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._users: set[str] = set()

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The process, or None before the first use and after the last."""
        return self._process

    def use(self, user: str, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Count a broker in, and spawn the process unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self._process = spawn()
        self._users.add(user)

    def leave(self, user: str) -> subprocess.Popen[bytes] | None:
        """Count a broker out; the process if nobody needs it any more: the caller ends it."""
        self._users.discard(user)
        if self._users:
            return None
        process, self._process = self._process, None
        return process
