"""Members that queues and logs are declared with, and brokers that have others already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from federation.brokers.cluster_arguments import (
    EVENLY,
    LEADER,
    LOG_MEMBERS,
    LOST_CONSUMER,
    LOST_CONSUMER_MS,
    QUEUE_MEMBERS,
    as_there,
    on_cluster,
    replicas_of,
)
from federation.brokers.provision import ONE_AT_A_TIME, QueueDeclaration
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
    assert on_cluster(QUEUE, 3).arguments == {
        "x-queue-type": "quorum",
        QUEUE_MEMBERS: 3,
        LEADER: EVENLY,
        LOST_CONSUMER: LOST_CONSUMER_MS,
    }
    for_log = {"x-queue-type": "stream", LEADER: EVENLY}
    assert on_cluster(LOG, 3).arguments == {**for_log, LOG_MEMBERS: 3}
    assert on_cluster(LOG, None).arguments == for_log
    assert on_cluster(CLASSIC, 3) is CLASSIC


@pytest.mark.parametrize(
    ("said", "changed"),
    [
        (refusal(QUEUE_MEMBERS, "the value '3' of type 'byte'", "none"), {QUEUE_MEMBERS: None}),
        (refusal(QUEUE_MEMBERS, "'3'", "'5'"), {QUEUE_MEMBERS: 5}),
        (refusal(QUEUE_MEMBERS, "none", "the value '3' of type 'byte'"), {QUEUE_MEMBERS: 3}),
        (refusal(LOST_CONSUMER, "the value '1000' of type 'long'", "none"), {LOST_CONSUMER: None}),
        (refusal(LEADER, "the value 'balanced' of type 'longstr'", "none"), {LEADER: None}),
        (refusal(LEADER, "'balanced'", "the value 'client-local'"), {LEADER: "client-local"}),
        (refusal(ONE_AT_A_TIME, "the value 'true' of type 'bool'", "none"), {ONE_AT_A_TIME: None}),
        (refusal(ONE_AT_A_TIME, "none", "the value 'true' of type 'bool'"), {ONE_AT_A_TIME: True}),
    ],
)
def test_what_is_there_with_other_arguments_is_declared_as_it_is(
    said: str, changed: Mapping[str, int | None]
) -> None:
    wanted = on_cluster(QUEUE, 3)
    there = as_there(wanted, said)
    assert there is not None
    arguments = {**wanted.arguments, **changed}
    assert there.arguments == {key: value for key, value in arguments.items() if value is not None}


def test_a_refusal_for_another_argument_stays_a_refusal() -> None:
    assert as_there(QUEUE, refusal("x-delivery-limit", "'3'", "none")) is None
