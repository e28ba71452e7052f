"""Members that queues and logs are declared with, and brokers that have others already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from federation.brokers.provision import QueueDeclaration
from federation.brokers.replicas import (
    LOG_MEMBERS,
    QUEUE_MEMBERS,
    as_there,
    replicas_of,
    with_replicas,
)
from federation.mesh import Site

SITE = Site("paris", "paris")
QUEUE = QueueDeclaration("egress", {"x-queue-type": "quorum"})
CLASSIC = QueueDeclaration("egress", {"x-queue-type": "classic"})
LOG = QueueDeclaration("log", {"x-queue-type": "stream"})


def refusal(key: str, wanted: str, there: str) -> str:
    return (
        f"PRECONDITION_FAILED - inequivalent arg '{key}' for queue 'q' in vhost '/': received "
        f"{wanted} but current is {there}"
    )


@pytest.mark.parametrize(
    ("nodes", "members"),
    [(None, None), (1, None), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)],
)
def test_as_many_members_as_outlive_the_most_nodes_and_none_for_one_node(
    nodes: int | None, members: int | None
) -> None:
    assert replicas_of(SITE, nodes) == members


def test_the_mesh_file_has_the_last_word() -> None:
    assert replicas_of(replace(SITE, replicas=1), 3) == 1
    assert replicas_of(replace(SITE, replicas=3), None) == 3
    assert replicas_of(replace(SITE, replicas=1), 1) is None


def test_queues_and_logs_have_arguments_of_their_own() -> None:
    assert with_replicas(QUEUE, 3).arguments == {"x-queue-type": "quorum", QUEUE_MEMBERS: 3}
    assert with_replicas(LOG, 3).arguments == {"x-queue-type": "stream", LOG_MEMBERS: 3}
    assert with_replicas(QUEUE, None) is QUEUE
    assert with_replicas(CLASSIC, 3) is CLASSIC


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        (refusal(QUEUE_MEMBERS, "the value '3' of type 'byte'", "none"), {}),
        (refusal(QUEUE_MEMBERS, "'3'", "'5'"), {QUEUE_MEMBERS: 5}),
        (refusal(QUEUE_MEMBERS, "none", "the value '3' of type 'byte'"), {QUEUE_MEMBERS: 3}),
    ],
)
def test_what_is_there_with_other_members_is_declared_as_it_is(
    said: str, arguments: Mapping[str, int]
) -> None:
    there = as_there(with_replicas(QUEUE, 3), said)
    assert there is not None
    assert there.arguments == {"x-queue-type": "quorum", **arguments}


def test_a_refusal_for_another_argument_stays_a_refusal() -> None:
    assert as_there(QUEUE, refusal("x-delivery-limit", "'3'", "none")) is None
