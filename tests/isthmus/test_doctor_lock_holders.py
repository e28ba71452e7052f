"""Findings of `isthmus doctor` about who holds the locks of a site with several nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from federation.brokers.addresses import ManagementAddress
from federation.brokers.management import ManagementApi
from federation.names import Names
from isthmus.doctor.finding import Finding, Findings
from isthmus.doctor.lock_holders import examine_lock_holders, lock_holder
from relay.bulk_amqp import Consumer, connect
from tests.federation.meshes import mesh_of
from tests.live_brokers import ADMIN, Vhost
from tests.waiting import until

MESH = mesh_of(
    "mesh: acme\ntopology: complete\nexchanges: [{name: orders}]\n"
    "sites: {paris: {slots: 2, nodes: [a, b], cluster: {}}, tokyo: {}}\n"
)
FIRST, SECOND = Names("acme"), Names("acme", 1)


class Broker:
    """Queues and connections as the management API shows each."""

    vhost = "/"

    def __init__(self, holders: Mapping[str, str]) -> None:
        self._holders = holders

    async def get(self, *path: str) -> Any:
        if path[0] == "connections":
            return {"user_provided_name": path[1].removeprefix("place of ")}
        holder = self._holders.get(path[2])
        return holder and {"owner_pid_details": {"name": f"place of {holder}"}}


async def examined(holders: Mapping[str, str], owners: Mapping[int, str]) -> list[Finding]:
    found = Findings("paris")
    await examine_lock_holders(cast(ManagementApi, Broker(holders)), MESH, owners, found)
    return found.all


async def test_locks_of_the_nodes_that_should_have_them_are_no_finding() -> None:
    holders = {
        FIRST.packer_lock: "isthmus paris packer at a",
        FIRST.deliverer_lock: "isthmus paris deliverer at a",
        SECOND.packer_lock: "isthmus paris.s1 packer at b",
    }
    assert await examined(holders, {0: "a", 1: "b"}) == []


@pytest.mark.parametrize("holder", ["isthmus paris.s1 packer at a", "shell"])
async def test_a_lock_of_another_node_or_of_nobodys_is_found(holder: str) -> None:
    (finding,) = await examined({SECOND.packer_lock: holder}, {0: "a", 1: "b"})
    assert finding.subject == "locks"
    assert finding.said == (
        f"b should run slot 1, and waits for {SECOND.packer_lock}, which the connection"
        f" {holder!r} holds"
    )


async def test_a_connection_of_an_earlier_version_is_of_no_known_node() -> None:
    assert await examined({SECOND.packer_lock: "isthmus paris packer"}, {0: "a", 1: "b"}) == []


async def test_locks_of_a_slot_that_no_node_should_run_are_not_judged() -> None:
    assert await examined({SECOND.packer_lock: "shell"}, {0: "a", 1: ""}) == []


@pytest.mark.live
@pytest.mark.parametrize("is_lease", [False, True])
async def test_the_holder_of_a_lock_is_named_by_a_real_broker(vhost: Vhost, is_lease: bool) -> None:
    connection = await connect(vhost.amqp_uri, name="isthmus paris packer at a")
    channel = await connection.channel()
    if is_lease:
        arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
        await channel.declare_queue("lock", durable=True, arguments=arguments)
        consumer = Consumer(channel, "lock", lambda deliveries: None, on_ended=lambda error: None)
        await consumer.start(prefetch=1)
    else:
        await channel.declare_queue("lock", exclusive=True)
    where = ManagementAddress(vhost.management_url, vhost.name, ADMIN.name, ADMIN.password)
    async with ManagementApi(where) as api:
        # The broker gathers its statistics every five seconds.
        await until(lambda: holds(api, "isthmus paris packer at a"), "the holder is named", 30)
        assert await lock_holder(api, "another") is None
    await connection.close()


async def holds(api: ManagementApi, name: str) -> bool:
    return await lock_holder(api, "lock") == name
