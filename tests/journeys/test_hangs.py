"""A node that hangs (SIGSTOP) is replaced; one that dies is there again at once; one that was
stopped for less, but long enough to lose its connections, recovers alone.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from federation.names import Names
from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.journeys.conftest import LoadedMeshFactory, LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.supervised_mesh import node_record, supervised
from tests.journeys.test_kills import TWO_EXCHANGES
from tests.waiting import until

pytestmark = pytest.mark.long  # a minute or more each on two busy cores

REPLACED_WITHIN_S = 15.0
RESTARTED_WITHIN_S = 2.0
BUSY_S = 5.0
"""What a busy machine may add to either."""


async def test_a_node_that_hangs_is_replaced_and_one_that_dies_is_begun_again_at_once(
    live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await live_mesh("paris", "tokyo", **{**TWO_EXCHANGES, "topology": "complete"})
    async with supervised(mesh) as supervisor:
        await mesh.running()
        traffic = load(mesh)
        await traffic.start()
        await traffic.more(500)
        for number, within_s in (
            (signal.SIGKILL, RESTARTED_WITHIN_S),
            (signal.SIGSTOP, REPLACED_WITHIN_S),
        ):
            pid = node_record(supervisor, "tokyo").pid
            assert pid is not None
            began = time.monotonic()
            os.kill(pid, number)
            await until(
                lambda pid=pid: node_record(supervisor, "tokyo").pid not in (pid, None),  # type: ignore[misc]
                lambda: f"not replaced: {node_record(supervisor, 'tokyo')}",
                within_s + BUSY_S,
            )
            print(f"{number.name}: another process after {time.monotonic() - began:.1f} s")
            await mesh.running()
            await traffic.more(500)
        await traffic.end()
        await traffic.arrived(within_s=240)
        traffic.check(lambda site, origin: 2 * ANNOUNCED_AT_MOST * (site == "tokyo"))


FORGOTTEN_WITHIN_S = 180.0
"""Links miss each other after three keep-alives of 5 s; brokers after two heartbeats of 10 s."""
MEETINGS: dict[str, dict[str, Any]] = {
    "each at the receiver's broker": {},
    "both at the other's broker": {"dial": "paris"},
}


async def connections(mesh: LiveMesh, site: str) -> list[str]:
    """What any broker of the mesh lists of connections of that site's node."""
    names = Names(mesh.mesh.name)
    users = [
        of_purpose(site)
        for of_purpose in (
            *(names.relay_user, names.packer_user, names.log_user, names.keeper_user),
            names.link_user,
        )
    ]
    listed = [
        connection
        for vhost in mesh.vhosts.values()
        for connection in await vhost.api("GET", "/vhosts/{vhost}/connections")
    ]
    return [connection["name"] for connection in listed if connection.get("user") in users]


@pytest.mark.long
@pytest.mark.parametrize("meeting", MEETINGS)
async def test_a_node_stopped_until_its_connections_are_gone_recovers_alone(
    loaded_mesh: LoadedMeshFactory, meeting: str
) -> None:
    mesh, traffic = await loaded_mesh(
        *("paris", "tokyo"),
        exchanges=TWO_EXCHANGES["exchanges"],
        topology="custom",
        links=[{"from": "paris", "to": "tokyo", "both": True, **MEETINGS[meeting]}],
    )
    await traffic.more(500)
    # The management API tells of a connection some seconds after it was made.
    await until(lambda: connections(mesh, "tokyo"), "tokyo's connections listed", 60, every_s=0.5)
    mesh.kill("tokyo", signal.SIGSTOP)

    async def forgotten() -> bool:
        return not await connections(mesh, "tokyo")

    await until(forgotten, "tokyo's connections gone", FORGOTTEN_WITHIN_S, every_s=0.5)
    mesh.kill("tokyo", signal.SIGCONT)
    await mesh.running()
    await traffic.more(500)
    await traffic.end()
    await traffic.arrived(within_s=240)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * (site == "tokyo"))
