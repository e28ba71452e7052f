"""Ports: nobody else gets them while we live."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from isthmus.brokers import ports
from isthmus.brokers.errors import NoFreePortError
from isthmus.brokers.ports import free_ports

# Asks for every port of a small range, in another process.
ANOTHER = """
import sys
from isthmus.brokers import ports
from isthmus.brokers.errors import NoFreePortError
ports.FIRST_PORT, ports.LAST_PORT = int(sys.argv[1]), int(sys.argv[2])
try:
    print(ports.free_ports(1)[0])
except NoFreePortError:
    print("none")
"""


def ask_in_another_process(first: int, last: int) -> str:
    asked = subprocess.run(
        [sys.executable, "-c", ANOTHER, str(first), str(last)],
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip()


def test_ports_are_different_and_can_be_listened_on():
    taken = free_ports(20)
    assert len(set(taken)) == 20
    for port in taken:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_a_port_is_handed_out_once_while_its_owner_lives():
    (mine,) = free_ports(1)
    assert ask_in_another_process(mine, mine) == "none"


def test_a_port_is_free_again_when_its_owner_has_ended(monkeypatch: pytest.MonkeyPatch):
    port = int(ask_in_another_process(ports.FIRST_PORT, ports.LAST_PORT))
    monkeypatch.setattr(ports, "FIRST_PORT", port)
    monkeypatch.setattr(ports, "LAST_PORT", port)
    assert free_ports(1) == [port]


def test_a_port_on_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST_PORT", port)
        monkeypatch.setattr(ports, "LAST_PORT", port)
        with pytest.raises(NoFreePortError, match="could not reserve 1 loopback ports"):
            free_ports(1)
