"""A site whose private broker is a cluster of three, run by `isthmus up`."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from federation.brokers.addresses import ManagementAddress, read_private_brokers
from federation.brokers.management import ManagementApi
from federation.names import Names
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.known.address_book import address_book
from isthmus.up.supervisor import end_supervisor
from isthmus.up.supervisor_record import ChildRecord, read_record
from tests.conftest import Eventually
from tests.federation.meshes import mesh_of
from tests.journeys.up_mesh import UpMesh, up_mesh

pytestmark = pytest.mark.long  # four brokers of its own

MESH = """\
mesh: three
topology: complete
exchanges: [{name: orders}]
sites: {paris: {brokers: 3}, tokyo: {}}
"""
NAMES = Names("three")
NODES = ("paris", "paris.2", "paris.3")


@pytest.fixture
async def up(tmp_path: Path, rabbitmq: RabbitMQInstallation) -> AsyncIterator[UpMesh]:
    async with up_mesh(tmp_path, MESH, rabbitmq) as mesh:
        yield mesh


async def test_a_site_on_three_broker_nodes_has_three_of_everything_and_outlives_two_kills(
    up: UpMesh, eventually: Eventually
) -> None:
    state = up.folder / "state"
    assert len(read_private_brokers(state)["paris"].others) == 2
    assert read_private_brokers(state)["tokyo"].others == ()
    assert await exclusive_locks(state, "paris") == set()
    assert len(await exclusive_locks(state, "tokyo")) == 2
    for site, count in (("paris", 3), ("tokyo", 1)):
        await eventually(
            lambda site=site, count=count: has_members(state, site, count),
            f"{count} members of each queue at {site}",
            deadline_s=30,
        )

    for name in ("paris.3", "paris"):
        before = broker(state, name)
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        await eventually(
            lambda name=name, before=before: is_back(state, name, before.pid),
            f"{name} is begun again",
            deadline_s=120,
        )
    await eventually(lambda: everything_runs(up), "everything runs", deadline_s=120)
    for origin, destination in (("paris", "tokyo"), ("tokyo", "paris")):
        await up.arrives(origin, destination)

    pids = [broker(state, name).pid for name in NODES]
    await end_supervisor(state)
    assert not any(pid is not None and Path(f"/proc/{pid}").exists() for pid in pids)


def queues() -> tuple[str, ...]:
    return NAMES.egress("orders"), NAMES.dead_letters, NAMES.quarantine, NAMES.log


def broker(state: Path, name: str) -> ChildRecord:
    record = read_record(state)
    assert record is not None
    child = record.child("broker", name)
    assert child is not None
    return child


def is_back(state: Path, name: str, former: int | None) -> bool:
    now = broker(state, name)
    return now.state == "running" and now.pid not in (None, former)


async def everything_runs(up: UpMesh) -> bool:
    _, said = await up.run("status", "--json")
    told: dict[str, Any] = json.loads(said)
    return all(site["state"] == "running" for site in told["sites"].values())


async def exclusive_locks(state: Path, site: str) -> set[str]:
    """The locks that are exclusive queues."""
    async with ManagementApi(management(state, site)) as api:
        names = {one["name"] for one in await api.get("queues", api.vhost) or ()}
    return names & {NAMES.packer_lock, NAMES.deliverer_lock}


async def has_members(state: Path, site: str, count: int) -> bool:
    """True if each queue of the relay's has so many members that run."""
    async with ManagementApi(management(state, site)) as api:
        found = {one["name"]: one for one in await api.get("queues", api.vhost) or ()}
    return all(len(found[name].get("online", ())) == count for name in queues())


def management(state: Path, site: str) -> ManagementAddress:
    address = address_book(mesh_of(MESH), state).management(site)
    assert address is not None
    return address
