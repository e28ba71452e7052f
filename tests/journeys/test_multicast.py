"""Sites of a multicast group: batches come by the group, and by the links where nothing comes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from federation.group_key import new_group_key
from relay.state.flow_state import ANNOUNCED_AT_MOST
from tests.group_network import free_udp_port, group_network
from tests.journeys.conftest import LoadFactory, MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.load import Load
from tests.journeys.test_signed_mesh import keys
from tests.waiting import until

SITES = ("paris", "tokyo", "sydney", "lima")
REPLAYERS = SITES[:2]
ALL_ON_LOOPBACK = ("127.0.0.1",) * len(SITES)


async def group_mesh(
    folder: Path,
    live_mesh: MeshFactory,
    interfaces: Sequence[str] = ALL_ON_LOOPBACK,
    **group: Any,
) -> LiveMesh:
    """A mesh with a group of all sites, each at an interface."""
    at = dict(zip(SITES, interfaces, strict=True))
    return await live_mesh(*SITES, **group_document(folder, at, **group))


def group_document(folder: Path, interfaces: Mapping[str, str], **group: Any) -> dict[str, Any]:
    """Keys of a mesh file with a group of sites at these interfaces, of which two are replayers."""
    key = folder / "group.key"
    key.write_text(new_group_key())
    on_loopback = set(interfaces.values()) <= set(ALL_ON_LOOPBACK)
    return {
        "batch_format": 2,
        "signing": "ed25519",
        "topology": {
            "multicast": {
                "group": f"239.192.7.1:{free_udp_port()}",
                "key": f"file:{key}",
                "rate": "20MB/s",
                "replayers": list(interfaces)[:2],
                "ttl": int(not on_loopback),
                **group,
            }
        },
        "sites": {
            site: keys(folder, site, site) | {"multicast": interface}
            for site, interface in interfaces.items()
        },
    }


async def under_load(mesh: LiveMesh, load: LoadFactory) -> Load:
    mesh.start_each()
    await mesh.running()
    traffic = load(mesh, per_second=100)
    await traffic.start()
    return traffic


async def groups(mesh: LiveMesh) -> dict[str, dict[str, Any]]:
    """Return the figures of the group that each site reports."""
    sites = (await mesh.status())["sites"]
    return {name: site.get("group", {}) for name, site in sites.items()}


async def until_by_group(mesh: LiveMesh, count: int = 50) -> None:
    """Wait until the group has brought so many batches to each site."""

    async def all_by_group() -> bool:
        found = await groups(mesh)
        return all(one.get("appended", 0) >= count for one in found.values())

    await until(all_by_group, mesh.logs, 60)


async def test_batches_come_to_all_sites_by_the_group(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await group_mesh(tmp_path, live_mesh)
    traffic = await under_load(mesh, load)
    await until_by_group(mesh)
    await traffic.end()
    await traffic.arrived(within_s=60)
    traffic.check()
    found = await groups(mesh)
    assert all(one["away"] == "" for one in found.values()), found
    published = sum(one["published"] for one in found.values())
    links = (await mesh.status())["links"]
    # Each site that is no replayer has one link from each of these.
    by_links = sum(link["sent"] for link in links if link["to"] not in REPLAYERS)
    assert by_links < published, "less than once at one of two sites"


async def strike(mesh: LiveMesh, traffic: Load, kills: int) -> dict[str, int]:
    """Kill nodes under load, replayers too; return how often each was."""
    chance, killed = random.Random(kills), dict.fromkeys(SITES, 0)
    for number in range(kills):
        await mesh.running()
        await traffic.more(chance.randrange(300, 900))
        victim = SITES[number % len(SITES)]
        mesh.kill(victim)
        killed[victim] += 1
        await traffic.more(chance.randrange(0, 600))
        mesh.start([victim])
    await traffic.more(500)
    return killed


@pytest.mark.slow
async def test_nodes_killed_amid_their_datagrams_lose_nothing_and_repeat_nothing_unflagged(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    mesh = await group_mesh(tmp_path, live_mesh)
    traffic = await under_load(mesh, load)
    killed = await strike(mesh, traffic, 6)
    await until_by_group(mesh)
    await traffic.end()
    await traffic.arrived(within_s=120)
    traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * killed[site])


@pytest.mark.slow
async def test_a_network_that_brings_no_datagram_makes_a_slower_mesh_and_no_broken_one(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    with group_network(len(SITES)) as network:
        interfaces = list(network.addresses.values())
        network.set_deaf(*interfaces)
        mesh = await group_mesh(tmp_path, live_mesh, interfaces)
        traffic = await under_load(mesh, load)
        killed = await strike(mesh, traffic, 4)
        await traffic.end()
        await traffic.arrived(within_s=120)
        traffic.check(lambda site, origin: ANNOUNCED_AT_MOST * killed[site])
        found = await groups(mesh)
        assert all(one["away"] == "" for one in found.values()), "all are members"
        assert not any(one.get("appended") for one in found.values()), "of a group that is dead"


@pytest.mark.slow
async def test_a_site_that_goes_deaf_is_brought_all_by_its_links_and_hears_again(
    tmp_path: Path, live_mesh: MeshFactory, load: LoadFactory
) -> None:
    with group_network(len(SITES)) as network:
        interfaces = dict(zip(SITES, network.addresses.values(), strict=True))
        mesh = await group_mesh(tmp_path, live_mesh, list(interfaces.values()))
        traffic = await under_load(mesh, load)
        await until_by_group(mesh)
        network.set_deaf(interfaces["lima"])
        before = (await groups(mesh))["lima"]["appended"]
        await traffic.more(1500)
        await traffic.arrived(within_s=30)
        at_last = (await groups(mesh))["lima"]["appended"]
        assert at_last - before < 10, "what was on its way"
        network.set_hearing(interfaces["lima"])
        await until_by_group(mesh, at_last + 50)
        await traffic.end()
        await traffic.arrived(within_s=60)
        traffic.check()
