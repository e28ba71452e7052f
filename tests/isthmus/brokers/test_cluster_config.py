"""Settings of the nodes of a private cluster, by release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.brokers.config import BrokerSpec, rabbitmq_conf
from isthmus.brokers.private_brokers import peered

FOLDER = Path("/somewhere")
FIRST, SECOND = (
    BrokerSpec(f"paris-{number}", FOLDER, number, number, number, number, 9) for number in (1, 2)
)
FOUNDER, JOINER = peered([FIRST, SECOND], cookie="secret")


def cluster_lines(spec: BrokerSpec, release: tuple[int, ...]) -> list[str]:
    conf = rabbitmq_conf(spec, FOLDER, release)
    return [line for line in conf.splitlines() if "cluster" in line and "discovery" not in line]


def test_a_single_broker_knows_nothing_of_clusters() -> None:
    assert "cluster" not in rabbitmq_conf(FIRST, FOLDER, (3, 10, 8))


def test_the_founder_looks_for_nobody_and_the_others_look_for_the_founder() -> None:
    pauses = "cluster_partition_handling = pause_minority"
    assert cluster_lines(FOUNDER, (3, 10, 8)) == [pauses]
    assert cluster_lines(JOINER, (4, 0, 5)) == [
        "cluster_formation.classic_config.nodes.1 = paris-1@localhost",
        "cluster_formation.classic_config.nodes.2 = paris-2@localhost",
        pauses,
    ]


def test_where_only_khepri_is_no_node_has_a_strategy_for_partitions() -> None:
    assert cluster_lines(FOUNDER, (4, 3, 6)) == []
    assert len(cluster_lines(JOINER, (4, 3, 6))) == 2


def test_two_nodes_of_one_name_are_no_cluster() -> None:
    with pytest.raises(ValueError, match="different names"):
        peered([FIRST, replace(FIRST, amqp_port=7)])


def test_the_cookie_is_not_shown() -> None:
    assert "secret" not in repr(FOUNDER)
