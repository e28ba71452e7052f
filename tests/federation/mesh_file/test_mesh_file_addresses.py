"""Lists of addresses of a site: what they come to, and what they may not say."""

from __future__ import annotations

import json

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import make_credentials
from federation.brokers.endpoint import Endpoint
from federation.mesh import BrokerAddress, Mesh
from federation.mesh_diff import mesh_diff
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.marked import the_error, with_tokyo
from tests.federation.meshes import mesh_of, problems_of

ONE = "broker: 'amqp://r@h1/v', password: 'env:P'"
THREE = "broker: ['amqp://r@h1/v', 'amqp://r@h2:5673/v', 'amqp://r@h3/v'], password: 'env:P'"


def book(mesh: Mesh) -> AddressBook:
    environ = {"P": "secret", "paris": "of paris", "sydney": "of sydney"}
    return AddressBook(mesh, make_credentials(mesh), {}, environ)


def broker_of(keys: str) -> BrokerAddress:
    broker = mesh_of(with_tokyo(keys)).sites["tokyo"].broker
    assert broker is not None
    return broker


def test_a_list_gives_every_connection_all_places_and_one_login() -> None:
    mesh = mesh_of(with_tokyo(f"{THREE}, management: ['http://h1', 'http://h2:1']"))
    addresses = book(mesh)
    packer = addresses.packer("tokyo")
    assert packer.endpoints == (Endpoint("h1", 5672), Endpoint("h2", 5673), Endpoint("h3", 5672))
    assert (packer.user, packer.password, packer.vhost) == ("r", "secret", "v")
    assert addresses.stream("tokyo").endpoints == tuple(Endpoint(f"h{n}", 5552) for n in (1, 2, 3))
    for management in (addresses.management("tokyo"), addresses.monitoring("tokyo")):
        assert management is not None
        assert management.urls == ("http://h1:15672", "http://h2:1")


def test_both_ends_of_a_link_may_dial_every_node_of_the_cluster() -> None:
    mesh = mesh_of(with_tokyo(THREE))
    link = next(one for one in mesh.links if one.meeting == "tokyo" and one.sender == "paris")
    addresses = book(mesh)
    assert addresses.link_end(link, "tokyo").endpoints == addresses.packer("tokyo").endpoints
    guest = addresses.link_end(link, "paris")
    assert guest.endpoints == addresses.packer("tokyo").endpoints
    assert (guest.user, guest.password) == ("isthmus.acme.link.paris", "of paris")


def test_users_of_the_nodes_own_may_use_every_address_too() -> None:
    mesh = mesh_of(with_tokyo(f"{THREE}, users: separate, management: 'http://h1'"))
    packer = book(mesh).packer("tokyo")
    assert packer.user == "isthmus.acme.packer.tokyo"
    assert packer.endpoints == book(mesh).administrator("tokyo").endpoints
    assert len(packer.endpoints) == 3


def test_via_is_dialled_instead_of_all_addresses() -> None:
    text = with_tokyo(THREE) + "links: [{from: paris, to: tokyo, via: 'gw:7'}]\n"
    mesh = mesh_of(text)
    link = next(one for one in mesh.links if (one.sender, one.receiver) == ("paris", "tokyo"))
    assert book(mesh).link_end(link, "paris").endpoints == (Endpoint("gw", 7),)


def test_nodes_on_one_host_have_one_stream_address_unless_it_is_written() -> None:
    keys = "broker: ['amqp://r@h/v', 'amqp://r@h:5673/v'], password: 'env:P'"
    assert broker_of(keys).streams == ("rabbitmq-stream://h:5552",)
    written = f"{keys}, stream: ['rabbitmq-stream://h', 'rabbitmq-stream://h:5553']"
    assert broker_of(written).streams == ("rabbitmq-stream://h:5552", "rabbitmq-stream://h:5553")


def test_a_list_of_one_is_the_address_alone_and_leaves_the_revision_as_it_was() -> None:
    alone, listed = (
        mesh_of(with_tokyo(ONE)),
        mesh_of(with_tokyo(ONE.replace("'amqp:", "['amqp:").replace("/v'", "/v']"))),
    )
    assert listed == alone
    assert alone.revision == "ee717cd11258"
    assert mesh_of(with_tokyo(THREE)).revision != alone.revision


def test_a_mesh_with_lists_is_kept_and_read_again() -> None:
    mesh = mesh_of(with_tokyo(f"{THREE}, management: ['http://h1', 'http://h2:1']"))
    kept = json.loads(json.dumps(mesh_as_json(mesh)))
    assert mesh_from_json(kept) == mesh
    for name in ("more_amqp", "more_streams", "more_managements"):
        del kept["sites"]["tokyo"]["broker"][name]  # as an earlier version wrote it down
    broker = mesh_from_json(kept).sites["tokyo"].broker
    assert broker is not None
    assert broker.amqps == ("amqp://r@h1:5672/v",)


def test_a_further_address_is_told_as_a_change_of_the_site() -> None:
    [line] = mesh_diff(mesh_of(with_tokyo(ONE)), mesh_of(with_tokyo(THREE)))
    assert line.startswith("~ site tokyo: broker (further addresses none -> amqp://r@h2:5673/v, ")


def test_a_template_gives_each_branch_its_own_list() -> None:
    mesh = mesh_of(
        """
        mesh: acme
        topology: {hub: head}
        exchanges: [{name: orders}]
        sites: {head: {}}
        branches:
          names: [oslo, rome]
          template:
            broker: ["amqp://r@{site}-1/v", "amqp://r@{site}-2/v"]
            password: "env:P"
        """
    )
    assert [place.host for place in book(mesh).listeners("rome")] == ["rome-1", "rome-2"]


MIXED = (
    ("broker: ^[], password: 'env:P'", "this list names no address; write one"),
    (f"{ONE}, stream: ^[]", "this list names no address; write one, or take the key out"),
    (f"{ONE}, management: ^[]", "this list names no address"),
    (
        "broker: ['amqp://r@h/v', ^'amqp://r@h:5672/v'], password: 'env:P'",
        "this address stands here twice; keep one of them",
    ),
    (
        f"{ONE}, management: ['http://a', 'http://b', ^'http://A:15672']",
        "this address stands here twice",
    ),
    (
        "broker: ['amqp://r@h1/v', ^'amqp://r@h2/w'], password: 'env:P'",
        "this address has the virtual host `w`, the first one `v`; a site is one virtual host",
    ),
    (
        "broker: ['amqp://r@h1/v', ^'amqp://q@h2/v'], password: 'env:P'",
        "this address has the user `q`, the first one `r`; a cluster's nodes have the same users",
    ),
    (
        "broker: ['amqps://r@h1/v', ^'amqp://r@h2/v'], password: 'env:P'",
        "this address begins with amqp://, the first one with amqps://; write amqps:// in each",
    ),
    (
        f"{ONE}, stream: ['rabbitmq-stream://h1', ^'rabbitmq-stream+tls://h2']",
        "this address begins with rabbitmq-stream+tls://, the first one with rabbitmq-stream://",
    ),
    ("broker: ['amqp://r@h1/v', ^'h2'], password: 'env:P'", "the address does not begin with"),
    (f"{ONE}, stream: ['rabbitmq-stream://h1', ^'http://h2']", "the address does not begin with"),
)


@pytest.mark.parametrize(("keys", "said"), MIXED)
def test_a_list_that_is_no_clusters_is_refused_at_the_address(keys: str, said: str) -> None:
    assert said in the_error(with_tokyo(keys))


def test_passwords_in_a_list_are_warned_of_and_must_be_one() -> None:
    keys = "broker: ['amqp://r:one@h1/v', 'amqp://r:one@h2/v']"
    problems = problems_of(with_tokyo(keys))
    assert [one.wrong for one in problems] == ["there is a password in clear in this address"] * 2
    assert broker_of(keys).password == "one"
    differing = problems_of(with_tokyo(keys.replace("one@h2", "other@h2")))
    assert "another password than the first one" in " ".join(one.wrong for one in differing)


def test_two_sites_may_not_share_any_node_and_virtual_host() -> None:
    text = with_tokyo(THREE).replace("sydney: {", f"sydney: {{{ONE.replace('h1', 'h3')}, ")
    wrong = [one.wrong for one in problems_of(text)]
    assert "site `tokyo` has this broker and virtual host already" in wrong or (
        "site `sydney` has this broker and virtual host already" in wrong
    )
