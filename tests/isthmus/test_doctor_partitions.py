"""Findings of doctor about the hash of a site's broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from federation.brokers.addresses import AddressBook, PrivateBroker
from federation.brokers.credentials import load_or_make
from federation.brokers.hash_probe import KNOWN_HASH
from federation.brokers.management import ManagementError
from federation.names import Names
from isthmus.doctor import partition_hash
from isthmus.doctor.finding import Finding, Findings, Grade
from isthmus.doctor.partition_hash import examine_hash, examine_spreading
from tests.federation.meshes import TRIANGLE, mesh_of

CUT = TRIANGLE.replace('keys: ["order.#"]', "partitions: 4")


def book(text: str, folder: Any) -> AddressBook:
    mesh = mesh_of(text)
    return AddressBook(mesh, load_or_make(folder, mesh), {"paris": PrivateBroker(1, 2, 3)}, {})


class Api:
    """Management API of a broker of this release, with or without Khepri."""

    def __init__(
        self, version: str, khepri: str | None, bindings: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.version, self.khepri = version, khepri
        self.bindings = [
            {"source": source, "destination": queue, "destination_type": "queue"}
            for source, queue in bindings
        ]
        self.vhost = "/"

    async def get(self, *path: str) -> Any:
        if path == ("bindings", "/"):
            return self.bindings
        if path == ("overview",):
            return {"rabbitmq_version": self.version}
        if self.khepri is None:
            raise ManagementError("http://paris", "not for this user")
        return [{"name": "khepri_db", "state": self.khepri}]


def spreading(text: str, api: Api, folder: Any) -> list[Finding]:
    found = Findings("paris")
    asyncio.run(examine_spreading(api, book(text, folder), found))  # type: ignore[arg-type]
    return found.all


@pytest.mark.parametrize(
    ("version", "khepri", "warned"),
    [
        ("3.10.8", "disabled", False),
        ("4.0.5", "disabled", False),
        ("4.0.5", "enabled", True),
        ("4.2.1", "enabled", True),
        ("4.2.1", None, False),
        ("4.3.0", "enabled", False),
    ],
)
def test_a_broker_whose_restart_may_move_keys_is_warned_of(
    version: str, khepri: str | None, warned: bool, tmp_path: Any
) -> None:
    findings = spreading(CUT, Api(version, khepri), tmp_path)
    assert [one.grade for one in findings] == [Grade.WARNING] * warned
    assert not spreading(TRIANGLE, Api(version, khepri), tmp_path)


def test_a_queue_of_others_among_the_partitions_is_a_fault(tmp_path: Any) -> None:
    names = Names("acme")
    spread = names.partitions("orders")
    own = [(spread, names.egress("orders", number)) for number in range(4)]
    assert not spreading(CUT, Api("3.10.8", "disabled", [*own, ("orders", "app")]), tmp_path)
    (one,) = spreading(CUT, Api("3.10.8", "disabled", [*own, (spread, "app")]), tmp_path)
    assert (one.subject, one.grade) == ("partitions", Grade.FAULT)
    assert f"queue app is bound to {spread}" in one.said


@pytest.mark.parametrize(
    ("answer", "grade", "text"),
    [
        (KNOWN_HASH, Grade.OK, "256 known keys"),
        ("another", Grade.FAULT, "to other partitions"),
        (OSError("unknown exchange type 'x-modulus-hash'"), Grade.FAULT, "has no exchanges"),
        (ConnectionRefusedError("nobody is there"), Grade.UNKNOWN, "nobody is there"),
    ],
)
def test_the_hash_is_what_others_have_or_a_finding(
    answer: str | OSError, grade: Grade, text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def probe(*_: object) -> str:
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(partition_hash, "probe_hash", probe)
    found = Findings("paris")
    asyncio.run(examine_hash(book(CUT, tmp_path), "paris", found))
    assert [(one.subject, one.grade) for one in found.all] == [("partitions", grade)]
    assert text in found.all[0].said
