"""Findings of `isthmus doctor` about a site whose broker is a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from federation.brokers.management import ManagementApi
from federation.brokers.provision import ONE_AT_A_TIME
from federation.names import Names
from isthmus.doctor.broker_nodes import examine_members, examine_nodes
from isthmus.doctor.finding import Finding, Findings
from tests.federation.meshes import mesh_of

PLAIN = mesh_of("mesh: three\ntopology: complete\nsites: {paris: {}, tokyo: {}}\n")
CLUSTER = mesh_of("mesh: three\ntopology: complete\nsites: {paris: {brokers: 3}, tokyo: {}}\n")
NAMES = Names("three")
THREE = ("a", "b", "c")


def node(name: str, **differs: Any) -> dict[str, Any]:
    return {"name": name, "running": True, "net_ticktime": 15, "partitions": [], **differs}


def queue(name: str, leader: str, **differs: Any) -> dict[str, Any]:
    copies = {"members": [*THREE], "online": [*THREE]}
    return {"name": name, "type": "quorum", "node": leader, **copies, **differs}


class Broker:
    """Nodes and queues as the management API of RabbitMQ 3.10 and 4.3 lists them."""

    vhost = "/"

    def __init__(self, nodes: Iterable[Mapping[str, Any]], *queues: Mapping[str, Any]) -> None:
        self._told = {"nodes": list(nodes), "queues": list(queues)}

    async def get(self, what: str, vhost: str = "", *, columns: str = "") -> Any:
        return self._told[what]


async def examined(broker: Broker, *, is_cluster: bool = True) -> list[Finding]:
    mesh, found = CLUSTER if is_cluster else PLAIN, Findings("paris")
    for examine in (examine_nodes, examine_members):
        await examine(cast(ManagementApi, broker), mesh, found)
    return found.all


LOG = queue(NAMES.log, "a", type="stream")
IN_TURN = {"x-queue-type": "quorum", ONE_AT_A_TIME: True}
EGRESS = queue(NAMES.egress("orders"), "b", arguments=IN_TURN)
ASIDE = queue(NAMES.dead_letters, "c")


async def test_a_cluster_that_is_well_has_no_finding() -> None:
    well = Broker(map(node, THREE), LOG, EGRESS, ASIDE, queue("orders.of.an.application", "a"))
    assert await examined(well) == []


async def test_a_broker_of_one_node_is_not_asked_for_copies() -> None:
    alone = {"members": ["a"], "online": ["a"]}
    lock = queue(NAMES.packer_lock, "a", type="classic")
    broker = Broker([node("a", net_ticktime=60)], queue(NAMES.log, "a", **alone), lock)
    assert await examined(broker, is_cluster=False) == []


@pytest.mark.parametrize(
    ("broker", "subject", "said"),
    [
        (
            Broker([node("a"), node("b")]),
            "cluster",
            "has two nodes, and stands when either is away",
        ),
        (
            Broker([node("a"), node("b"), node("c", net_ticktime=60)]),
            "cluster",
            "counts as down after up to 75 s",
        ),
        (
            Broker([node("a"), node("b", mem_alarm=True), node("c")]),
            "memory",
            "b has a memory alarm",
        ),
        (
            Broker([node("a"), node("b"), {"name": "c", "running": False}]),
            "broker",
            "its node c does not run",
        ),
        (
            Broker(map(node, THREE), {**LOG, "online": ["a", "c"]}, EGRESS, ASIDE),
            "members",
            f"the copy of {NAMES.log} at b does not work",
        ),
        (
            Broker(map(node, THREE), LOG, {**EGRESS, "members": ["b"]}, ASIDE),
            "members",
            "has 1 copy, and 3 are wanted",
        ),
        (
            Broker(map(node, THREE), *({**each, "node": "b"} for each in (LOG, EGRESS, ASIDE))),
            "leaders",
            "b leads 3 of 3 queues, and a, c none",
        ),
        (
            Broker(
                map(node, THREE), LOG, {**EGRESS, "arguments": {"x-queue-type": "quorum"}}, ASIDE
            ),
            "order",
            "may come behind newer messages",
        ),
        (
            Broker(map(node, THREE), queue(NAMES.packer_lock, "c", type="classic")),
            "locks",
            "the site's own node no longer uses",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_faults_of_a_cluster_come_with_remedies(
    broker: Broker, subject: str, said: str
) -> None:
    (finding,) = await examined(broker)
    assert finding.subject == subject
    assert said in finding.said
    assert finding.mend


async def test_a_copy_on_a_node_that_does_not_run_is_told_once_by_the_node() -> None:
    without_c = {"online": ["a", "b"]}
    nodes = [node("a"), node("b"), {"name": "c", "running": False}]
    broker = Broker(nodes, {**LOG, **without_c}, {**EGRESS, **without_c})
    assert [one.subject for one in await examined(broker)] == ["broker"]


async def test_a_cluster_that_the_mesh_file_does_not_tell_of_is_found_and_its_orphaned_lock() -> (
    None
):
    nodes = [node("a"), node("b"), {"name": "c", "running": False}]
    lock = queue(NAMES.deliverer_lock, "c", type="classic")
    found = {one.subject: one.said for one in await examined(Broker(nodes, lock), is_cluster=False)}
    assert "a cluster of 3 nodes, and the mesh file does not say so" in found["cluster"]
    assert f"{NAMES.deliverer_lock} is orphaned" in found["locks"]


async def test_a_log_that_lacks_a_copy_is_given_it_from_a_node_that_has_one() -> None:
    log = {**LOG, "members": ["b", "c"], "online": ["b", "c"]}
    (finding,) = await examined(Broker(map(node, THREE), log, EGRESS, ASIDE))
    assert finding.mend == f"on b: rabbitmq-streams add_replica {NAMES.log} a"
