"""Loopback ports reserved for one process at a time.

A port that was free when bound to port 0 and closed may be handed to two test runs before either
listens. So a lock on a small file reserves a port; the kernel releases the lock when the process
ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

from isthmus.brokers.errors import NoFreePortError

# Below the range from which the kernel takes the near ends of outgoing connections (32768 on
# Linux): a port between a broker's two runs must not be taken by somebody's client.
FIRST_PORT = 20_000
LAST_PORT = 31_999


def free_ports(count: int) -> list[int]:
    """Reserve `count` different free loopback TCP ports for the life of this process. Raises
    NoFreePortError.
    """
    folder = _reservation_folder()
    start = random.SystemRandom().randrange(FIRST_PORT, LAST_PORT + 1)
    span = LAST_PORT - FIRST_PORT + 1
    ports: list[int] = []
    for step in range(span):
        if len(ports) == count:
            break
        port = FIRST_PORT + (start - FIRST_PORT + step) % span
        if _reserve(folder, port):
            ports.append(port)
    if len(ports) < count:
        raise NoFreePortError(count, FIRST_PORT, LAST_PORT)
    return ports


def _reservation_folder() -> Path:
    # One folder a user: in a shared temporary directory nobody can lock another's files.
    folder = Path(tempfile.gettempdir()) / f"isthmus-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _reserve(folder: Path, port: int) -> bool:
    # The descriptor stays open on purpose, without anyone holding it: the lock ends with the
    # process. Python does not pass it on to children.
    descriptor = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    if not _is_free(port):
        os.close(descriptor)
        return False
    return True


def _is_free(port: int) -> bool:
    # Without SO_REUSEADDR a listener that has just closed would count as busy for a minute; with
    # it, binding still fails while anyone listens.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
