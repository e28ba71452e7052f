"""Errors of private brokers.

LocalBrokerError
├── RabbitMQNotFoundError     no installation in the searched folders
├── BrokerStartError          the node ended, or was not ready in time
└── NoFreePortError           no loopback port could be reserved
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class LocalBrokerError(Exception):
    """Base of all errors of private brokers."""


class RabbitMQNotFoundError(LocalBrokerError):
    """No usable RabbitMQ installation; the text lists the searched folders and packages to
    install.
    """

    def __init__(self, looked_in: Sequence[Path], problem: str) -> None:
        self.looked_in = tuple(looked_in)
        self.problem = problem
        places = ", ".join(str(place) for place in looked_in)
        super().__init__(
            f"{problem} (looked in {places}). Install RabbitMQ 3.10 or newer with "
            "`apt-get install rabbitmq-server` (Debian, Ubuntu) or run `make setup`; or name "
            "another installation with --rabbitmq DIR: a folder with sbin/rabbitmq-server, or a "
            "Debian chroot with rabbitmq-server installed, as `make rabbitmq43` makes one."
        )


class BrokerStartError(LocalBrokerError):
    """A node ended while starting, or was not ready before the deadline."""

    def __init__(self, name: str, problem: str, log_file: Path, last_lines: Sequence[str]) -> None:
        self.name = name
        self.problem = problem
        self.log_file = log_file
        self.last_lines = tuple(last_lines)
        lines = "\n".join(f"    {line}" for line in last_lines) or "    (nothing was logged)"
        super().__init__(
            f"broker {name!r} {problem}. Last lines of its output and of {log_file}:\n{lines}"
        )


class NoFreePortError(LocalBrokerError):
    """No loopback port could be reserved."""

    def __init__(self, wanted: int, first: int, last: int) -> None:
        self.wanted = wanted
        super().__init__(
            f"could not reserve {wanted} loopback ports between {first} and {last}: all of them "
            "are in use; end some of the processes that listen there"
        )
