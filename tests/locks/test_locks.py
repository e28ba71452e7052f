"""Fate of a lock on three broker nodes, by release: see the table in docs/promises.md."""

from __future__ import annotations

import pytest

from isthmus.rabbitmq_install import RabbitMQInstallation
from tests.locks.trial import run_trial

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
