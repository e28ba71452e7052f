"""Private brokers that `isthmus up` runs for a mesh: one for each site that names none, or as many
as the site's `brokers` says, which are a cluster.

Ports are chosen once and kept in STATE/ports.json, so that a restart changes no address. The first
node of a cluster is the broker that the site would have alone: its name, folder and ports are the
same, so that a site can get more brokers later.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from federation import durable_file
from federation.brokers.addresses import BrokerPorts, PrivateBroker, write_private_brokers
from federation.brokers.credentials import Credentials
from federation.brokers.users import site_users
from federation.mesh import Mesh
from isthmus.brokers.config import NET_TICK_S, BrokerSpec, BrokerUser
from isthmus.brokers.local_brokers import COOKIE_NAME
from isthmus.brokers.local_cluster import peered
from isthmus.brokers.ports import free_ports
from isthmus.known.known_meshes import KnownMeshes

_PORTS_OF_A_BROKER = 5
CLUSTER_NET_TICK_S = 15
"""Until a node that hangs counts as down, the log that it leads takes nothing: with Erlang's 60 s
for more than a minute, with this for some 20 s. Less would take a busy machine's pauses for hangs.
"""


def plan_brokers(
    mesh: Mesh, state: Path, credentials: Credentials, *, schedulers: int = 1
) -> dict[str, tuple[BrokerSpec, ...]]:
    """Plan the brokers to run, by site, a cluster's founder first; write STATE/brokers.json, where
    the rest finds their addresses.
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
    """Unlike any site's name but the first, as no site's name has a dot."""
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
    """Each broker's five ports: kept ones, and free ones for the brokers that have none yet."""
    kept: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}
    new = [broker for broker in brokers if broker not in kept]
    if new:
        free = free_ports(_PORTS_OF_A_BROKER * len(new))
        for number, broker in enumerate(new):
            kept[broker] = free[_PORTS_OF_A_BROKER * number : _PORTS_OF_A_BROKER * (number + 1)]
        file.parent.mkdir(parents=True, exist_ok=True)
        durable_file.write(file, json.dumps(kept, indent=1))
    return {broker: kept[broker] for broker in brokers}
