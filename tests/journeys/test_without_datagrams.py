"""Journeys of other graphs on a mesh with a multicast group, in a network that brings no datagram:
links alone keep each promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.group_network import GroupNetwork, group_network
from tests.journeys import (
    test_kills,
    test_lost_log_tail,
    test_shutdown,
    test_state_lost,
    test_topologies,
)
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.test_multicast import group_document

pytestmark = pytest.mark.long

MOST_SITES = 4


@pytest.fixture
def deaf_network() -> Iterator[GroupNetwork]:
    with group_network(MOST_SITES) as network:
        network.set_deaf(*network.addresses.values())
        yield network


@pytest.fixture
def live_mesh(tmp_path: Path, live_mesh: MeshFactory, deaf_network: GroupNetwork) -> MeshFactory:
    """Call as the fixture of the same name; whatever the graph, there is a group in its place."""

    async def make(*sites: str, **how: Any) -> LiveMesh:
        interfaces = dict(zip(sites, deaf_network.addresses.values(), strict=False))
        return await live_mesh(
            *sites, **how | {"links": [], **group_document(tmp_path, interfaces)}
        )

    return make


test_nodes_killed = (
    test_kills.test_nodes_killed_under_load_lose_nothing_and_repeat_nothing_unflagged
)
test_brokers_killed = (
    test_kills.test_brokers_killed_under_load_lose_nothing_and_repeat_nothing_unflagged
)
test_a_log_lost_its_tail = test_lost_log_tail.test_what_a_log_lost_comes_again_there_and_behind_it
test_a_log_was_deleted = (
    test_lost_log_tail.test_a_log_that_is_deleted_and_made_anew_fills_again_from_its_neighbours
)
test_each_message_comes_once = test_topologies.test_the_triangle_of_rabbitmqs_own_federation_tests
test_nodes_end_in_order = (
    test_shutdown.test_nodes_ended_by_sigterm_under_load_leave_nothing_in_doubt
)
test_a_broker_is_away_at_the_start = (
    test_shutdown.test_a_broker_that_is_away_at_the_start_is_waited_for_and_disturbs_no_other_link
)
test_a_broker_takes_no_publishes = (
    test_shutdown.test_a_broker_that_takes_no_publishes_is_waited_for_and_said_to_block
)
test_a_state_was_deleted = (
    test_state_lost.test_after_a_kill_and_a_deleted_folder_what_lies_past_the_mark_comes_flagged
)
