"""Private brokers of a mesh, for each site without a `broker`: one, or a cluster of as many as the
site's `brokers`.

Ports are chosen once and kept in STATE/ports.json, so that restarts keep addresses. The first node
of a cluster has the name, folder and ports of a single broker, so that a site can get more brokers
later.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from federation import durable_file
from federation.brokers.addresses import BrokerPorts, PrivateBroker, write_private_brokers
from federation.brokers.credentials import Credentials
from federation.brokers.users import site_users
from federation.mesh import Mesh
from isthmus.brokers.config import NET_TICK_S, BrokerSpec, BrokerUser, ClusterPeers
from isthmus.brokers.local_brokers import COOKIE_NAME
from isthmus.brokers.ports import free_ports
from isthmus.known.known_meshes import KnownMeshes

_PORTS_OF_A_BROKER = 5
CLUSTER_NET_TICK_S = 15
"""Net tick (s) of clusters. The log led by a hung node takes nothing until the node counts as down:
more than a minute with Erlang's 60 s, some 20 s with this value. Less would mistake a busy
machine's pauses for hangs.
"""


def plan_brokers(
    mesh: Mesh, state: Path, credentials: Credentials, *, schedulers: int = 1
) -> dict[str, tuple[BrokerSpec, ...]]:
    """Plan the brokers by site, a cluster's founder first; write their addresses to
    STATE/brokers.json.
    """
    sites = [name for name, site in mesh.sites.items() if site.broker is None]
    known = KnownMeshes(state)
    nodes = {site: _node_names(site, mesh.sites[site].brokers) for site in sites}
    ports = _ports(state / "ports.json", [name for names in nodes.values() for name in names])
    specs: dict[str, tuple[BrokerSpec, ...]] = {}
    for site, names in nodes.items():
        users = tuple(
            BrokerUser(u.name, u.password, u.tags, u.configure, u.write, u.read)
            for u in site_users(mesh, site, credentials, known.delivered_at(site))
        )
        specs[site] = _joined(
            [
                BrokerSpec(
                    name,
                    (state / "brokers" / name).absolute(),
                    amqp_port=ports[name][0],
                    stream_port=ports[name][1],
                    management_port=ports[name][2],
                    dist_port=ports[name][3],
                    # Nodes of one host find each other by one port mapper.
                    epmd_port=ports[site][4],
                    users=users,
                    schedulers=schedulers,
                    net_tick_s=NET_TICK_S if len(names) == 1 else CLUSTER_NET_TICK_S,
                )
                for name in names
            ]
        )
    write_private_brokers(state, {site: _address(of_site) for site, of_site in specs.items()})
    return specs


def _node_names(site: str, count: int) -> list[str]:
    """Return node names unlike any site's but the first: site names have no dot."""
    return [site, *(f"{site}.{number}" for number in range(2, count + 1))]


def _joined(specs: Sequence[BrokerSpec]) -> tuple[BrokerSpec, ...]:
    if len(specs) == 1:
        return tuple(specs)
    cookie = specs[0].folder / COOKIE_NAME
    return peered(specs, cookie.read_text() if cookie.exists() else _new_cookie(cookie))


def _new_cookie(file: Path) -> str:
    cookie = secrets.token_hex(16)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(cookie)
    return cookie


def _address(specs: Sequence[BrokerSpec]) -> PrivateBroker:
    first, *others = specs
    return PrivateBroker(
        first.amqp_port,
        first.stream_port,
        first.management_port,
        control=first.control,
        others=tuple(BrokerPorts(o.amqp_port, o.stream_port, o.management_port) for o in others),
    )


def _ports(file: Path, brokers: list[str]) -> dict[str, list[int]]:
    """Return each broker's five ports: kept ones, and free ones for new brokers."""
    kept: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}
    new = [broker for broker in brokers if broker not in kept]
    if new:
        free = free_ports(_PORTS_OF_A_BROKER * len(new))
        for number, broker in enumerate(new):
            kept[broker] = free[_PORTS_OF_A_BROKER * number : _PORTS_OF_A_BROKER * (number + 1)]
        file.parent.mkdir(parents=True, exist_ok=True)
        durable_file.write(file, json.dumps(kept, indent=1))
    return {broker: kept[broker] for broker in brokers}


def peered(specs: Sequence[BrokerSpec], cookie: str | None = None) -> tuple[BrokerSpec, ...]:
    """Make brokers nodes of one cluster, founded by the first.

    Nodes on one host need equal `epmd_port`, and different names and ports. Without `cookie` a new
    one is made.
    """
    names = tuple(spec.node_name for spec in specs)
    if len(set(names)) < len(names):
        raise ValueError(f"nodes of one cluster have different names, not {', '.join(names)}")
    peers = ClusterPeers(names, cookie or secrets.token_hex(16))
    return tuple(replace(spec, peers=peers) for spec in specs)
