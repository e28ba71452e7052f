"""Who connects where, as whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federation.brokers.addresses import (
    BROKERS_FILE,
    AddressBook,
    BrokerNotKnown,
    BrokerPorts,
    BrokersFileBroken,
    PrivateBroker,
    PrivateServers,
    ServersNotKnown,
    packer_user,
    read_private_brokers,
    read_private_servers,
    relay_user,
    vouched_user,
    write_private_brokers,
    write_private_servers,
)
from federation.brokers.credentials import Credentials, make_credentials
from federation.mesh import Link, Mesh
from federation.mesh_file import PasswordMissing
from tests.federation.mesh_file.test_mesh_file_clusters import mesh_with
from tests.federation.meshes import TRIANGLE, mesh_of

PRIVATE = {
    "paris": PrivateBroker(5001, 5002, 5003),
    "tokyo": PrivateBroker(6001, 6002, 6003),
    "sydney": PrivateBroker(5001, 5002, 5003, vhost="sydney/2"),
}
OWN = (
    "tokyo: {broker: 'amqps://r%2F1@rabbit.example/v', password: 'env:PW', "
    "management: 'https://rabbit.example'}"
)


def book(mesh: Mesh, **environ: str) -> AddressBook:
    return AddressBook(mesh, make_credentials(mesh), PRIVATE, environ)


def link(mesh: Mesh, sender: str, receiver: str) -> Link:
    return next(x for x in mesh.links if (x.sender, x.receiver) == (sender, receiver))


def test_each_purpose_of_a_node_has_a_user_and_a_password_at_its_private_broker() -> None:
    addresses = book(mesh_of(TRIANGLE))
    deliverer = addresses.deliverer("paris")
    password = addresses.credentials.of("paris").relay
    assert deliverer.uri == f"amqp://isthmus.acme.relay.paris:{password}@127.0.0.1:5001/%2F"
    assert deliverer.public_uri == "amqp://127.0.0.1:5001/%2F"
    assert password not in repr(deliverer)
    stream = addresses.stream("paris")
    assert (stream.host, stream.port, stream.user) == ("127.0.0.1", 5002, "isthmus.acme.log.paris")
    assert not stream.tls
    monitor, admin = addresses.monitoring("paris"), addresses.management("paris")
    assert monitor is not None
    assert admin is not None
    logins = [
        (one.user, one.password)
        for one in (
            *(deliverer, addresses.packer("paris"), addresses.keeper("paris"), stream),
            *(addresses.administrator("paris"), monitor, addresses.application("paris")),
        )
    ]
    assert logins[4] == (admin.user, admin.password)
    assert len({user for user, _ in logins}) == len({word for _, word in logins}) == 7
    assert relay_user(addresses.mesh, "paris") == deliverer.user
    assert packer_user(addresses.mesh, "paris") == addresses.packer("paris").user


def test_sites_may_share_a_private_broker_by_virtual_hosts() -> None:
    addresses = book(mesh_of(TRIANGLE))
    assert addresses.deliverer("sydney").public_uri == "amqp://127.0.0.1:5001/sydney%2F2"
    assert addresses.stream("sydney").vhost == "sydney/2"
    management = addresses.management("sydney")
    assert management is not None
    assert (management.url, management.vhost) == ("http://127.0.0.1:5003", "sydney/2")
    assert management.user == "isthmus.acme.admin.sydney"


def test_an_application_has_a_user_that_is_not_the_relays() -> None:
    addresses = book(mesh_of(TRIANGLE))
    application = addresses.application("paris")
    assert application.user == "isthmus.acme.app.paris"
    assert application.password == addresses.credentials.of("paris").app


def test_each_end_of_a_link_comes_with_a_user_of_its_own_that_the_broker_vouches_for() -> None:
    mesh = mesh_of(TRIANGLE)
    addresses = book(mesh)
    there = link(mesh, "paris", "tokyo")
    guest, host = addresses.link_end(there, "paris"), addresses.link_end(there, "tokyo")
    assert (guest.port, guest.user) == (6001, "isthmus.acme.link.paris")
    assert guest.password == addresses.credentials.of("paris").link
    assert (host.port, host.user) == (6001, "isthmus.acme.link.tokyo")
    assert host.password == addresses.credentials.of("tokyo").link
    assert vouched_user(mesh, there, "paris") == guest.user
    assert vouched_user(mesh, there, "tokyo") == host.user
    with pytest.raises(ValueError, match="'sydney' is no end of the link paris-tokyo"):
        addresses.link_end(there, "sydney")


def test_via_is_dialled_by_the_guest_only() -> None:
    mesh = mesh_of(TRIANGLE + "links: [{from: paris, to: tokyo, via: 'gw.example:7000'}]\n")
    addresses = book(mesh)
    there = link(mesh, "paris", "tokyo")
    guest = addresses.link_end(there, "paris")
    assert (guest.host, guest.port, guest.user) == ("gw.example", 7000, "isthmus.acme.link.paris")
    assert addresses.link_end(there, "tokyo").port == 6001
    assert addresses.link_end(link(mesh, "tokyo", "paris"), "tokyo").port == 5001


def test_at_a_third_sites_broker_both_ends_are_guests() -> None:
    mesh = mesh_of(TRIANGLE + "links: [{from: paris, to: tokyo, dial: sydney, via: 'gw:7'}]\n")
    addresses = book(mesh)
    there = link(mesh, "paris", "tokyo")
    ends = [addresses.link_end(there, site) for site in ("paris", "tokyo")]
    assert [end.user for end in ends] == ["isthmus.acme.link.paris", "isthmus.acme.link.tokyo"]
    assert {(end.host, end.port, end.vhost) for end in ends} == {("gw", 7, "sydney/2")}


def test_at_a_broker_of_ones_own_all_ends_use_the_one_user_of_its_address() -> None:
    mesh = mesh_of(TRIANGLE.replace("tokyo: {}", OWN))
    addresses = book(mesh, PW="s3c/ret")
    there = link(mesh, "paris", "tokyo")
    for address in (
        addresses.deliverer("tokyo"),
        addresses.packer("tokyo"),
        addresses.keeper("tokyo"),
        addresses.administrator("tokyo"),
        addresses.application("tokyo"),
        addresses.link_end(there, "paris"),
        addresses.link_end(there, "tokyo"),
    ):
        assert address.uri == "amqps://r%2F1:s3c%2Fret@rabbit.example:5671/v"
    assert relay_user(mesh, "tokyo") == packer_user(mesh, "tokyo") == "r/1"
    assert addresses.monitoring("tokyo") == addresses.management("tokyo")
    assert vouched_user(mesh, there, "paris") == "r/1"
    stream = addresses.stream("tokyo")
    assert (stream.port, stream.tls, stream.user) == (5551, True, "r/1")
    management = addresses.management("tokyo")
    assert management is not None
    assert (management.url, management.user) == ("https://rabbit.example:15671", "r/1")


def test_with_a_link_password_a_site_comes_to_others_own_brokers_as_itself() -> None:
    text = TRIANGLE.replace("tokyo: {}", OWN).replace(
        "paris: {}", "paris: {link_password: 'env:PARIS'}"
    )
    mesh = mesh_of(text)
    there = link(mesh, "paris", "tokyo")
    # Where paris's node runs, nobody knows tokyo's password.
    at_paris = book(mesh, PARIS="its own")
    end = at_paris.link_end(there, "paris")
    assert end.uri == "amqps://isthmus.acme.link.paris:its%20own@rabbit.example:5671/v"
    with pytest.raises(PasswordMissing, match="environment variable PW"):
        at_paris.link_end(there, "tokyo")
    assert book(mesh, PW="x").link_end(there, "tokyo").user == "r/1"
    assert vouched_user(mesh, there, "paris") == "isthmus.acme.link.paris"
    assert vouched_user(mesh, there, "tokyo") == "r/1"
    # At a private broker it has the password that was made for it.
    back = link(mesh, "sydney", "paris")
    assert at_paris.link_end(back, "paris").password == at_paris.credentials.of("paris").link


def test_with_separate_users_the_node_needs_no_password_of_the_brokers_own_user() -> None:
    own = OWN.replace("tokyo: {", "tokyo: {users: separate, ")
    mesh = mesh_of(
        TRIANGLE.replace("tokyo: {}", own).replace(
            "paris: {}", "paris: {link_password: 'env:PARIS'}"
        )
    )
    there, node = link(mesh, "paris", "tokyo"), book(mesh)
    logins = [
        *(node.deliverer("tokyo"), node.packer("tokyo"), node.keeper("tokyo")),
        *(node.stream("tokyo"), node.link_end(there, "tokyo")),
    ]
    assert [one.user for one in logins] == [
        f"isthmus.acme.{purpose}.tokyo" for purpose in ("relay", "packer", "keeper", "log", "ends")
    ]
    assert {(one.host, one.vhost, one.tls) for one in logins} == {("rabbit.example", "v", True)}
    assert len({one.password for one in logins}) == 5
    monitor = node.monitoring("tokyo")
    assert monitor is not None
    assert (monitor.url, monitor.user) == (
        "https://rabbit.example:15671",
        "isthmus.acme.monitor.tokyo",
    )
    assert (relay_user(mesh, "tokyo"), packer_user(mesh, "tokyo")) == tuple(
        one.user for one in logins[:2]
    )
    assert vouched_user(mesh, there, "tokyo") == "isthmus.acme.ends.tokyo"
    assert vouched_user(mesh, there, "paris") == "isthmus.acme.link.paris"
    # Those who declare and publish are as before; so is a guest without a password of its own.
    for address in (node.administrator, node.application):
        with pytest.raises(PasswordMissing):
            address("tokyo")
    back = link(mesh, "sydney", "tokyo")
    assert vouched_user(mesh, back, "sydney") == book(mesh, PW="x").link_end(back, "sydney").user
    assert book(mesh, PW="x").link_end(back, "sydney").user == "r/1"


def test_without_management_in_the_file_there_is_none() -> None:
    mesh = mesh_of(
        TRIANGLE.replace("tokyo: {}", "tokyo: {broker: 'amqp://r@h', password: 'env:PW'}")
    )
    assert book(mesh, PW="x").management("tokyo") is None


def test_a_password_that_is_missing_is_told_when_it_is_needed_and_not_before() -> None:
    addresses = book(mesh_of(TRIANGLE.replace("tokyo: {}", OWN)))
    assert addresses.deliverer("paris")
    with pytest.raises(PasswordMissing, match="environment variable PW"):
        addresses.deliverer("tokyo")


def test_a_private_broker_that_nobody_started_is_told_with_the_mend() -> None:
    mesh = mesh_of(TRIANGLE)
    addresses = AddressBook(mesh, make_credentials(mesh), {}, {})
    with pytest.raises(BrokerNotKnown, match="run `isthmus up` first"):
        addresses.deliverer("paris")


def test_where_private_brokers_listen_is_written_down_and_read_back(tmp_path: Path) -> None:
    assert read_private_brokers(tmp_path / "state") == {}
    write_private_brokers(tmp_path / "state", PRIVATE)
    assert read_private_brokers(tmp_path / "state") == PRIVATE


@pytest.mark.parametrize(
    "content", ["", "[]", '{"format": 9}', '{"format": 1, "sites": {"a": {}}}']
)
def test_a_damaged_brokers_file_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / BROKERS_FILE).write_text(content)
    with pytest.raises(BrokersFileBroken, match="run `isthmus up` again"):
        read_private_brokers(tmp_path)


def test_a_private_cluster_has_an_address_of_each_kind_for_every_node() -> None:
    others = (BrokerPorts(5004, 5005, 5006), BrokerPorts(5007, 5008, 5009))
    cluster = PrivateBroker(5001, 5002, 5003, others=others)
    mesh = mesh_of(TRIANGLE)
    book = AddressBook(mesh, make_credentials(mesh), {"paris": cluster}, {})
    assert [place.port for place in book.packer("paris").endpoints] == [5001, 5004, 5007]
    assert [place.port for place in book.stream("paris").endpoints] == [5002, 5005, 5008]
    management = book.management("paris")
    assert management is not None
    assert [url[-4:] for url in management.urls] == ["5003", "5006", "5009"]


def test_a_private_cluster_is_read_as_it_was_written(tmp_path: Path) -> None:
    alone = PrivateBroker(1, 2, 3)
    cluster = PrivateBroker(1, 2, 3, others=(BrokerPorts(4, 5, 6),))
    write_private_brokers(tmp_path, {"paris": cluster, "tokyo": alone})
    assert read_private_brokers(tmp_path) == {"paris": cluster, "tokyo": alone}
    assert "others" not in json.loads((tmp_path / "brokers.json").read_text())["sites"]["tokyo"]


def test_where_private_servers_listen_is_in_the_nodes_of_a_site_that_names_none(
    tmp_path: Path,
) -> None:
    mesh = mesh_of(mesh_with("cluster: {}"))
    with pytest.raises(ServersNotKnown, match="run `isthmus up` first"):
        AddressBook(mesh, Credentials({}), {}, {}).nodes_of("paris")
    assert read_private_servers(tmp_path) is None
    written = PrivateServers(1, 2, 3)
    write_private_servers(tmp_path, written)
    book = AddressBook(mesh, Credentials({}), {}, {}, servers=read_private_servers(tmp_path))
    assert book.servers == written
    nodes = book.nodes_of("paris")
    assert (nodes.zookeeper.hosts, nodes.cassandra.hosts) == (("127.0.0.1:1",), ("127.0.0.1:2",))
    (tmp_path / "servers.json").write_text('{"format": 2}')
    with pytest.raises(BrokersFileBroken, match="run `isthmus up` again"):
        read_private_servers(tmp_path)
