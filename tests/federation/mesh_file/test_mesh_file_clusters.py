"""`brokers` and `replicas` of a site: what they come to, and what is refused."""

from __future__ import annotations

import pytest

from tests.federation.marked import the_error, the_warning
from tests.federation.meshes import mesh_of, problems_of

MESH = """\
mesh: office
topology: complete
exchanges: [{name: orders}]
sites:
  paris: {KEYS}
  tokyo: {}
"""


def mesh_with(keys: str) -> str:
    return MESH.replace("KEYS", keys)


def test_a_site_has_one_private_broker_unless_its_file_wants_more() -> None:
    sites = mesh_of(mesh_with("brokers: 3, replicas: 1")).sites
    assert (sites["paris"].brokers, sites["paris"].replicas) == (3, 1)
    assert (sites["tokyo"].brokers, sites["tokyo"].replicas) == (1, None)


def test_a_mesh_without_clusters_has_the_revision_that_it_had() -> None:
    alone = mesh_of(mesh_with("")).revision
    assert mesh_of(mesh_with("brokers: 1")).revision == alone
    assert mesh_of(mesh_with("brokers: 3")).revision != alone


def test_brokers_are_for_sites_without_a_broker_of_their_own() -> None:
    own = "broker: amqp://relay@rabbit/, password: env:RELAY"
    assert "runs no cluster for this site" in the_error(mesh_with(f"^brokers: 3, {own}"))


def test_there_are_no_more_replicas_than_broker_nodes() -> None:
    assert "5 replicas need as many broker nodes" in the_error(
        mesh_with("brokers: 3, replicas: ^5")
    )
    assert "at least 1" in the_error(mesh_with("brokers: ^0"))


@pytest.mark.parametrize("keys", ["brokers: ^2", "brokers: 3, replicas: ^2"])
def test_an_even_number_is_warned_of(keys: str) -> None:
    assert "outlive" in the_warning(mesh_with(keys))


def test_a_broker_of_ones_own_may_have_as_many_replicas_as_there_are_nodes() -> None:
    own = "broker: amqp://relay@rabbit/, password: env:RELAY"
    problems = problems_of(mesh_with(f"{own}, replicas: 3"))
    assert not any("replicas" in str(problem) for problem in problems)
