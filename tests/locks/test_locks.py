"""Fate of a lock on three broker nodes, by release: see the table in docs/promises.md."""

from __future__ import annotations

import pytest

from isthmus.brokers.installation import RabbitMQInstallation
from tests.locks.trial import IGNORE, run_trial

pytestmark = pytest.mark.long
KHEPRI_ONLY = (4, 3)
LEASE_S = 20.0
"""After a proof that old a holder does nothing any more."""


async def test_the_queue_of_a_killed_node_is_free_at_once_before_khepri_and_with_khepri_orphaned(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "its node is killed, and back after 30 s")).verdict
    assert found.taken_at is not None
    if rabbitmq.release >= KHEPRI_ONLY:
        assert found.taken_at > 29, "only when its node is back"
    else:
        assert found.taken_at < 10
    assert found.next_proof is not None
    assert found.next_proof < 15, "a lease waits for no node"


async def test_a_cut_gives_a_lease_to_another_only_long_after_the_holders_last_proof(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "its node is cut off for 120 s")).verdict
    assert found.next_proof is not None
    assert found.last_proof is not None
    assert found.next_proof - found.last_proof > LEASE_S
    assert found.handovers == 1


async def test_a_node_that_hangs_for_two_minutes_may_leave_two_holders_of_the_queue_with_khepri(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "its node is stopped for 120 s")).verdict
    if rabbitmq.release < KHEPRI_ONLY:
        assert found.overlap_s == 0
    assert found.handovers == 1
    assert found.next_proof is not None
    assert found.last_proof is not None
    assert found.next_proof - found.last_proof > LEASE_S


async def test_a_node_that_hangs_for_five_seconds_keeps_both_locks_where_they_are(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "its node is stopped for 5 s")).verdict
    assert (found.lost_at, found.taken_at, found.handovers) == (None, None, 0)


async def test_the_queue_of_a_node_that_hangs_for_thirty_seconds_is_free_when_the_node_goes_on(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "its node is stopped for 30 s")).verdict
    assert found.taken_at is not None
    assert found.taken_at > 29
    assert found.overlap_s == 0
    assert not found.is_orphaned
    assert found.handovers <= 1


@pytest.mark.parametrize(
    "name", ["all nodes are restarted in turn", "its node is drained for maintenance"]
)
async def test_both_locks_pass_on_with_the_connection_when_nodes_end_in_order(
    rabbitmq: RabbitMQInstallation, name: str
) -> None:
    found = (await run_trial(rabbitmq, name)).verdict
    assert found.lost_at is not None
    assert found.taken_at is not None
    assert 0 <= found.taken_at - found.lost_at < 5
    assert found.overlap_s == 0
    assert not found.is_orphaned
    assert found.handovers >= 1


async def test_both_locks_stay_while_another_node_is_cut_off(
    rabbitmq: RabbitMQInstallation,
) -> None:
    found = (await run_trial(rabbitmq, "another node is cut off for 120 s")).verdict
    assert (found.lost_at, found.taken_at, found.handovers) == (None, None, 0)


async def test_with_ignore_a_node_that_is_cut_off_takes_the_queue_beside_its_holder(
    rabbitmq: RabbitMQInstallation,
) -> None:
    name = "another node is cut off for 120 s"
    found = (await run_trial(rabbitmq, name, partitions=IGNORE)).verdict
    assert found.handovers == 0, "a lease is the majority's"
    if rabbitmq.release >= KHEPRI_ONLY:
        assert found.taken_at is None, "Khepri asks a majority whatever the setting says"
    else:
        assert found.overlap_s > 0
        assert found.harm > 0
