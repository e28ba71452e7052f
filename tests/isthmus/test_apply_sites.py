"""Several sites applied at once; some share a broker."""

from __future__ import annotations

from pathlib import Path

from federation.brokers.addresses import AddressBook, PrivateBroker
from federation.brokers.credentials import load_or_make, make_credentials
from federation.brokers.provision import declarations
from federation.brokers.users import site_users
from federation.names import Names
from isthmus.brokers.config import BrokerUser
from isthmus.site_apply import apply_sites, by_broker
from tests.conftest import VhostFactory
from tests.federation.meshes import mesh_of

COMPLETE = """\
mesh: MESH
topology: complete
exchanges:
  - {name: orders, keys: ["order.#"]}
sites: {paris: {}, tokyo: {}, sydney: {}, quito: {}}
"""


def test_sites_are_grouped_by_the_broker_that_they_share() -> None:
    mesh = mesh_of(
        """\
        mesh: acme
        topology: complete
        exchanges: [{name: orders}]
        sites:
          paris: {}
          tokyo: {}
          sydney: {}
          lima: {broker: "amqp://relay@hub.example/lima", password: "env:PW"}
          quito: {broker: "amqp://relay@hub.example:5672/quito", password: "env:PW"}
          unknown: {}
        """
    )
    private = {
        "paris": PrivateBroker(5001, 5002, 5003, vhost="paris"),
        "tokyo": PrivateBroker(6001, 6002, 6003),
        "sydney": PrivateBroker(5001, 5002, 5003, vhost="sydney"),
    }
    book = AddressBook(mesh, make_credentials(mesh), private, {})
    # Neither a missing password nor a broker that nobody knows is this function's affair.
    assert by_broker(book, list(mesh.sites)) == [
        ["paris", "sydney"],
        ["tokyo"],
        ["lima", "quito"],
        ["unknown"],
    ]


def test_sites_whose_lists_have_a_node_in_common_share_a_broker() -> None:
    mesh = mesh_of(
        """\
        mesh: acme
        topology: complete
        exchanges: [{name: orders}]
        sites:
          paris: {broker: ["amqp://r@h1/paris", "amqp://r@h2/paris"], password: "env:PW"}
          tokyo: {broker: ["amqp://r@h3/tokyo"], password: "env:PW"}
          lima: {broker: "amqp://r@h4/lima", password: "env:PW"}
          quito: {broker: ["amqp://r@h3/quito", "amqp://r@h2/quito"], password: "env:PW"}
        """
    )
    book = AddressBook(mesh, make_credentials(mesh), {}, {})
    assert by_broker(book, list(mesh.sites)) == [["paris", "tokyo", "quito"], ["lima"]]


async def test_sites_of_one_broker_applied_at_once_give_every_neighbour_its_rights_everywhere(
    vhost_factory: VhostFactory, tmp_path: Path
) -> None:
    vhosts = {name: await vhost_factory(name) for name in ("paris", "tokyo", "sydney", "quito")}
    # Users belong to the whole broker: this mesh has a name of its own.
    mesh = mesh_of(COMPLETE.replace("MESH", vhosts["paris"].name.replace(".", "-")))
    credentials = load_or_make(tmp_path, mesh)
    private = {}
    for site, vhost in vhosts.items():
        spec = vhost.broker.spec
        private[site] = PrivateBroker(
            spec.amqp_port, spec.stream_port, spec.management_port, vhost=vhost.name
        )
        admin = Names(mesh.name).admin_user(site)
        tags = next(user.tags for user in site_users(mesh, site, credentials) if user.name == admin)
        await vhost.add_user(BrokerUser(admin, credentials.of(site).admin, tags))
    book = AddressBook(mesh, credentials, private, {})

    reports = await apply_sites(book, list(mesh.sites), tmp_path)

    assert [report.site for report in reports] == list(mesh.sites)
    assert [report.faults for report in reports] == [()] * 4
    for site, vhost in vhosts.items():
        told = await vhost.api("GET", "/vhosts/{vhost}/permissions")
        have = {one["user"] for one in told}
        wanted = {user.name for user in declarations(mesh, site, credentials).users}
        assert wanted - have == set(), site
