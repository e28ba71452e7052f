"""What a node's process tells systemd: that it is ready, that it lives, how it is, that it ends.

The protocol of sd_notify(3): datagrams of NAME=value lines to the socket in NOTIFY_SOCKET. Without
one (no systemd, or another Type=) nothing is sent. The sign of life comes from the event loop that
relays: one that hangs is killed and started again after WatchdogSec.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

SAY_EVERY_S = 5.0
_LEAST_BETWEEN_S = 0.1


class ServiceManager:
    """`environ` is the process's environment; `summary` says in a line how the sites are."""

    def __init__(self, environ: Mapping[str, str], pid: int, summary: Callable[[], str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._summary = summary
        self._socket: socket.socket | None = None
        self.watchdog_s: float | None = None
        """Within what time a sign of life is expected; None: none is."""
        usec = environ.get("WATCHDOG_USEC", "")
        if usec.isdecimal() and environ.get("WATCHDOG_PID", str(pid)) == str(pid):
            self.watchdog_s = int(usec) / 1e6
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    async def run(self) -> None:
        """Ready from now on; then signs of life and the summary, until cancelled."""
        self._say("READY=1")
        every_s = SAY_EVERY_S if self.watchdog_s is None else min(SAY_EVERY_S, self.watchdog_s / 3)
        while self._socket is not None:
            self._say(f"WATCHDOG=1\nSTATUS={self._summary()}")
            await asyncio.sleep(max(_LEAST_BETWEEN_S, every_s))

    def stopping(self) -> None:
        """The process ends in order; no sign of life is expected any more than otherwise."""
        self._say("STOPPING=1")

    def close(self) -> None:
        """Close; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _say(self, text: str) -> None:
        if self._socket is None:
            return
        # A leading @ stands for the null byte of an abstract socket.
        path = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto(text.encode(), path)
        except OSError as error:
            # A full buffer, or systemd starts anew: the next sign of life follows.
            log.warning("systemd was not told %s: %s", text.partition("\n")[0], error)
