"""Sites whose broker speaks TLS: log, egress, delivery, links and `apply` go through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.doctor.examination import examine
from isthmus.doctor.finding import Grade
from tests.certificates import DAY, Authority, replaced
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.tls_broker import RELAY, TlsBroker, tls_broker
from tests.tls_site import tls_keys

SITES = ("paris", "tokyo")


@pytest.fixture(scope="module")
def broker(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    with tls_broker(rabbitmq, tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture
async def mesh(
    broker: TlsBroker,
    live_mesh: MeshFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> LiveMesh:
    """Of two sites; its nodes run, applications connect in clear. The parameter is `auth`."""
    monkeypatch.setenv("P", RELAY.password)
    replaced(tmp_path / "ca.pem", broker.authority.certificate)
    broker.clients.issues().write(tmp_path, "relay")
    sites = {name: await broker.site(name, tls=tls_keys(tmp_path)) for name in SITES}
    for site in sites.values():
        site |= {"auth": getattr(request, "param", "password"), "password": "env:P"}
    mesh = await live_mesh(topology="complete", sites=sites)
    for name, site in sites.items():
        uri = broker.in_clear(site)
        mesh.sources[name] = TrafficSource(uri, name, "orders")
        mesh.sinks[name] = TrafficSink(uri, name, "orders")
        await mesh.sinks[name].start()
    mesh.start_each()
    await mesh.running()
    return mesh


@pytest.mark.parametrize(
    "mesh", ["password", pytest.param("external", marks=pytest.mark.slow)], indirect=True
)
async def test_what_is_renewed_on_disk_is_taken_up_by_running_nodes(
    broker: TlsBroker, mesh: LiveMesh, tmp_path: Path
) -> None:
    """The broker's certificate, its authority, who vouches for ours, and ours: all of them."""
    await mesh.publish_everywhere(100)
    await mesh.arrived()
    mesh.check(most_flags=0)

    successor, clients = Authority("its successor"), Authority("the clients' successor")
    replaced(tmp_path / "ca.pem", broker.authority.certificate + successor.certificate)
    await broker.trusts(broker.clients, clients)
    await broker.shows(successor.issues())
    clients.issues().write(tmp_path, "relay")
    replaced(tmp_path / "ca.pem", successor.certificate)
    await broker.trusts(clients)
    try:
        await mesh.publish_everywhere(100)
        await mesh.arrived()
        await broker.part_from_all()
        await mesh.publish_everywhere(100)
        await mesh.arrived()
        await mesh.running()
        told = await mesh.status()
        assert all(site["log"]["connections"] > 1 for site in told["sites"].values())
        assert all(link["sessions"] > 1 for link in told["links"])
        mesh.check()
    finally:
        await broker.shows(broker.authority.issues())
        await broker.trusts(broker.clients)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["external"], indirect=True)
async def test_a_measurement_connects_as_the_mesh_file_says(mesh: LiveMesh) -> None:
    words = ("--rate", "50", "--duration", "500ms")
    code, said = await isthmus(mesh, "bench", *words)
    assert code == 2, said
    assert "tokyo: orders has queue sink.orders, bound by '#'" in said
    code, said = await isthmus(mesh, "bench", *words, "--disturb-others")
    assert code == 0, said


@pytest.mark.parametrize("who", [pytest.param("the broker's", marks=pytest.mark.slow), "ours"])
async def test_a_certificate_that_is_refused_stops_the_mesh_until_it_is_renewed(
    broker: TlsBroker, mesh: LiveMesh, tmp_path: Path, who: str
) -> None:
    old = {"begins": -2 * DAY, "ends": -DAY}
    if who == "ours":
        broker.clients.issues(**old).write(tmp_path, "relay")
    else:
        await broker.shows(broker.authority.issues(**old))
    try:
        await broker.part_from_all()
        said = ("relay.pem has expired", "it ended the connection before")
        expected = said if who == "ours" else ("its certificate has expired: renew it there",)

        def are_told(told: dict[str, Any]) -> bool:
            reasons = [str(told["sites"][name]["reason"]) for name in SITES]
            return all(any(one in reason for one in expected) for reason in reasons)

        await mesh.until_told(are_told, "both sites say why", within_s=20)
        await mesh.publish_everywhere(100)
        faults = {
            one.subject: one.said
            for one in await examine(mesh.book, ["paris"], mesh.state)
            if one.site and one.grade is Grade.FAULT
        }
        assert any(one in faults["broker"] for one in expected), faults
        assert ("certificate" in faults) == (who == "ours"), faults
    finally:
        if who == "ours":
            broker.clients.issues().write(tmp_path, "relay")
        else:
            await broker.shows(broker.authority.issues())
    await mesh.running()
    await mesh.arrived()
    mesh.check()
