"""`isthmus doctor` finds what was planted, says it of the right site, and finds nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from federation.brokers.addresses import PrivateBroker, read_private_brokers, write_private_brokers
from federation.mesh import Link
from federation.names import Names
from isthmus.brokers.ports import free_ports
from isthmus.doctor.examination import examine
from isthmus.doctor.finding import Finding, Grade
from relay.bulk_amqp import Consumer, connect
from tests.journeys.application import at, letter
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.shared_mesh import SHARED, running_mesh
from tests.journeys.supervised_mesh import isthmus
from tests.live_brokers import BrokerPool
from tests.waiting import until

SITES = ("paris", "tokyo", "lima")
pytestmark = SHARED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    broker_pool: BrokerPool, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LiveMesh]:
    folder = tmp_path_factory.mktemp("doctor")
    between = {"from": [*SITES], "to": [*SITES]}
    exchanges = [
        {"name": "orders", "keys": ["order.#"], **between},
        {"name": "news", "type": "fanout", **between},
        {"name": "ticks", "partitions": 2, **between},
    ]
    links = [{"from": a, "to": b} for a in SITES for b in SITES if a != b]
    async with running_mesh(
        broker_pool, folder, *SITES, topology="custom", links=links, exchanges=exchanges
    ) as mesh:
        yield mesh


async def examined(mesh: LiveMesh, *, late_s: float = 0) -> list[Finding]:
    return await examine(
        mesh.book,
        list(mesh.mesh.sites),
        mesh.state,
        lambda: datetime.now(UTC) - timedelta(seconds=late_s),
    )


def not_well(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.grade is not Grade.OK]


async def test_a_mesh_that_is_well_has_no_finding(mesh: LiveMesh) -> None:
    findings = await examined(mesh)
    assert not_well(findings) == []
    assert {one.subject for one in findings if one.site == "paris"} >= {
        *("broker", "log", "link paris-tokyo", "version", "disk", "retention", "clock"),
        *("declared", "node", "partitions"),
    }


@asynccontextmanager
async def somebody_consumes(mesh: LiveMesh, site: str, queue: str) -> AsyncIterator[None]:
    vhost = mesh.vhosts[site]
    connection = await connect(vhost.amqp_uri, name="somebody")
    consumer = Consumer(await connection.channel(), queue, lambda _: None)
    await consumer.start(prefetch=1)
    try:
        yield
    finally:
        await connection.close()


async def test_every_planted_fault_is_found_and_its_mend_told(mesh: LiveMesh) -> None:
    names = Names(mesh.mesh.name)
    paris, tokyo = mesh.vhosts["paris"], mesh.vhosts["tokyo"]
    egress = names.egress("orders")

    # At paris: what others do there.
    ttl = {"pattern": "orders", "definition": {"message-ttl": 9}, "priority": 99}
    await paris.api("PUT", "/policies/{vhost}/ttl", {**ttl, "apply-to": "queues"})
    short = {"pattern": "log$", "definition": {"max-age": "60s"}, "priority": 99}
    await paris.api("PUT", "/policies/{vhost}/short", {**short, "apply-to": "queues"})
    await paris.api("DELETE", f"/bindings/{{vhost}}/e/news/q/{names.egress('news')}/~")
    async with at(mesh, "paris", as_operator=True) as (operator,):
        await operator.post("", letter(b"?", key=names.dead_letters.encode()))
    # At tokyo: what is not there.
    assert mesh.stop("tokyo") == 0
    await tokyo.api("DELETE", f"/queues/{{vhost}}/{egress}")
    await tokyo.api("DELETE", f"/exchanges/{{vhost}}/{names.link_data(_link(mesh))}")
    await tokyo.api("DELETE", f"/permissions/{{vhost}}/{names.link_user('lima')}")
    # Three more sites, in the file only: of one nobody answers, one's broker is not known, one's
    # password is nowhere.
    (closed,) = free_ports(1)
    brokers = read_private_brokers(mesh.state)
    spec = brokers["tokyo"]
    brokers["tokyo"] = PrivateBroker(spec.amqp_port, closed, spec.management_port, vhost=spec.vhost)
    brokers["cairo"] = PrivateBroker(closed, closed, closed)
    write_private_brokers(mesh.state, brokers)
    mesh.document["sites"] |= {
        "cairo": {},
        "oslo": {},
        "rome": {"broker": "amqp://u@127.0.0.1:1/v", "password": "env:NOWHERE_TO_BE_FOUND"},
    }
    mesh.write()

    wanted = [
        ("paris", "policies", Grade.FAULT, "'ttl'", "message-ttl", egress, "drops messages"),
        ("paris", "retention", Grade.FAULT, "'short'", "60s", "apply"),
        ("paris", "declared", Grade.FAULT, f"news ----> {names.egress('news')}", "apply"),
        (
            "paris",
            "dead-letters",
            Grade.WARNING,
            "1 message put aside",
            "isthmus dead-letters list",
        ),
        ("paris", "egress", Grade.FAULT, paris.user, egress, "consumes"),
        ("paris", "clock", Grade.WARNING, "+", "time server"),
        ("tokyo", "node", Grade.FAULT, "isthmus relay FILE --site tokyo"),
        ("tokyo", "log", Grade.FAULT, str(closed), "rabbitmq-plugins enable rabbitmq_stream"),
        ("tokyo", "declared", Grade.FAULT, f"queue {egress}", "apply"),
        ("lima", "link lima-tokyo", Grade.FAULT, "refuses", names.link_user("lima")),
        ("cairo", "broker", Grade.FAULT, str(closed), "`isthmus up` runs"),
        ("oslo", "broker", Grade.FAULT, "isthmus up"),
        ("rome", "broker", Grade.FAULT, "NOWHERE_TO_BE_FOUND"),
    ]
    findings: list[Finding] = []

    def lacking() -> list[tuple[str, ...]]:
        return [
            (site, subject, grade, *words)
            for site, subject, grade, *words in wanted
            if not any(
                (one.site, one.subject, one.grade) == (site, subject, grade)
                and all(word in f"{one.said} {one.mend}" for word in words)
                for one in findings
            )
        ]

    async def all_found() -> bool:
        nonlocal findings
        findings = not_well(await examined(mesh, late_s=60))
        return not lacking()

    # The management API tells of queues' policies and consumers some seconds late.
    async with somebody_consumes(mesh, "paris", egress):
        await until(all_found, lambda: f"not found: {lacking()} in {findings}", 60)
    assert all(one.mend for one in findings)


async def test_the_command_tells_the_same_and_ends_with_1(mesh: LiveMesh) -> None:
    code, said = await isthmus(mesh, "doctor", "--site", "rome", "--site", "paris")
    assert code == 1
    assert "fault    rome: broker: " in said
    assert " -> " in said


def _link(mesh: LiveMesh) -> Link:
    """The one from lima to tokyo, which meets at tokyo."""
    return next(link for link in mesh.mesh.links if link.name == "lima-tokyo")
