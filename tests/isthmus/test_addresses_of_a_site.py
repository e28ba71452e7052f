"""`apply` and `doctor` at a site with a list of addresses."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.apply import apply_site
from federation.brokers.apply_report import ItemOutcome
from federation.brokers.credentials import load_or_make
from federation.brokers.one_cluster import NodeAnswer, several_clusters
from isthmus.brokers.config import BrokerUser
from isthmus.doctor.connections import examine_connections
from isthmus.doctor.finding import Findings, Grade
from tests.conftest import VhostFactory
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost, api

DEAD = "127.0.0.1:1"


def book_of(vhost: Vhost, state: Path, amqp: list[str], more: str = "") -> AddressBook:
    """Mesh whose site paris has these addresses (HOST:PORT) of that virtual host."""
    addresses = ", ".join(f"'amqp://{vhost.user}@{one}/{vhost.name}'" for one in amqp)
    mesh = mesh_of(
        f"""
        mesh: {vhost.name}
        topology: complete
        exchanges: [{{name: orders}}]
        sites:
          paris: {{broker: [{addresses}], password: 'env:PW'{more}}}
          tokyo: {{link_password: 'env:TOKYO'}}
        """
    )
    return AddressBook(mesh, load_or_make(state, mesh), {}, {"PW": vhost.password, "TOKYO": "t"})


def amqp(vhost: Vhost) -> str:
    return f"{vhost.host}:{vhost.amqp_port}"


def stream(*vhosts: Vhost) -> str:
    listed = ", ".join(f"'rabbitmq-stream://{one.host}:{one.stream_port}'" for one in vhosts)
    return f", stream: [{listed}]"


async def the_same_elsewhere(vhost: Vhost, other: Vhost) -> Vhost:
    """Make a virtual host and user of the same names at the other broker, as careless copies do."""
    await api(other.broker, "PUT", f"/vhosts/{quote(vhost.name, safe='')}", {})
    twin = Vhost(other.broker, vhost.name, vhost.user, vhost.password)
    await twin.add_user(BrokerUser(vhost.user, vhost.password, tags=("administrator",)))
    return twin


def grades(found: Findings, subject: str) -> list[Grade]:
    return [one.grade for one in found.all if one.subject == subject]


async def test_apply_works_over_the_nodes_that_answer_and_names_the_others(
    vhost: Vhost, tmp_path: Path
) -> None:
    book = book_of(vhost, tmp_path, [DEAD, amqp(vhost)])
    report = await apply_site(book, "paris", tmp_path)
    assert report.ok, report.faults
    assert {item.outcome for item in report.items if item.kind == "exchange"} == {
        ItemOutcome.CREATED
    }
    [silent] = [item for item in report.unchecked if item.kind == "broker"]
    assert silent.name == DEAD
    assert "start that node" in silent.mend


@pytest.mark.slow
async def test_apply_declares_nothing_where_the_addresses_are_two_clusters(
    vhost: Vhost, vhost_factory: VhostFactory, tmp_path: Path
) -> None:
    twin = await the_same_elsewhere(vhost, await vhost_factory(broker=1))
    book = book_of(vhost, tmp_path, [amqp(vhost), amqp(twin)])
    report = await apply_site(book, "paris", tmp_path)
    [fault] = report.faults
    assert (fault.kind, fault.outcome) == ("broker", ItemOutcome.FAILED)
    assert amqp(twin) in fault.detail
    assert "which calls itself 'shared1@" in fault.detail
    assert report.items == (fault,)
    # But those by which apply told the clusters apart, which end with its connections.
    assert all(one["exclusive"] for one in await vhost.api("GET", "/queues/{vhost}"))


@pytest.mark.slow
async def test_apply_does_not_take_the_management_of_another_cluster(
    vhost: Vhost, vhost_factory: VhostFactory, tmp_path: Path
) -> None:
    await vhost.add_user(BrokerUser(vhost.user, vhost.password, tags=("administrator",)))
    twin = await the_same_elsewhere(vhost, await vhost_factory(broker=1))
    urls = f", management: ['{twin.management_url}', 'http://{DEAD}']"
    book = book_of(vhost, tmp_path, [amqp(vhost)], urls)
    [fault] = (await apply_site(book, "paris", tmp_path)).faults
    assert fault.detail.endswith(f"than {amqp(vhost)}: {twin.management_url}")


async def test_doctor_warns_of_a_node_that_does_not_answer_and_finds_two_clusters(
    vhost: Vhost, vhost_factory: VhostFactory, tmp_path: Path
) -> None:
    twin = await the_same_elsewhere(vhost, await vhost_factory(broker=1))
    alone = book_of(vhost, tmp_path, [DEAD, amqp(vhost)], stream(vhost))
    assert (await apply_site(alone, "paris", tmp_path)).ok
    for addresses, streams, wanted in (
        ([DEAD, amqp(vhost)], [vhost], [Grade.WARNING]),
        ([amqp(vhost), amqp(twin)], [vhost], [Grade.FAULT]),
        ([amqp(vhost)], [vhost, twin], [Grade.WARNING]),
    ):
        book = book_of(vhost, tmp_path, addresses, stream(*streams))
        found = Findings("paris")
        assert await examine_connections(book, "paris", found)
        assert grades(found, "cluster") == wanted, found.all
        assert grades(found, "broker") == grades(found, "log") == [Grade.OK]


async def test_doctor_has_nothing_to_say_of_a_single_address(vhost: Vhost, tmp_path: Path) -> None:
    book = book_of(vhost, tmp_path, [amqp(vhost)], stream(vhost))
    assert (await apply_site(book, "paris", tmp_path)).ok
    found = Findings("paris")
    assert await examine_connections(book, "paris", found)
    assert grades(found, "cluster") == []


def test_strangers_are_told_by_their_address_and_by_what_they_call_themselves() -> None:
    dead, first = NodeAnswer("h0:1", why_not="refused"), NodeAnswer("h1:1", "rabbit@h1")
    assert several_clusters([dead, first, NodeAnswer("h2:1", "rabbit@h2")]) == ""
    strangers = (
        NodeAnswer("h3:1", "rabbit@h3", is_stranger=True),
        NodeAnswer("http://h4", is_stranger=True),
    )
    assert several_clusters([dead, first, *strangers]) == (
        "of another cluster than h1:1: h3:1 (which calls itself 'rabbit@h3'), http://h4"
    )
