"""Which private brokers `isthmus up` runs for a mesh: one for each site that names none.

Ports are chosen once and kept in STATE/ports.json, so that a restart changes no address.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from federation.brokers.addresses import PrivateBroker, write_private_brokers
from federation.brokers.credentials import Credentials
from federation.brokers.users import site_users
from federation.mesh import Mesh
from isthmus.broker_config import BrokerSpec, BrokerUser
from isthmus.known_meshes import KnownMeshes
from isthmus.ports import free_ports

_PORTS_OF_A_BROKER = 5


def plan_brokers(
    mesh: Mesh, state: Path, credentials: Credentials, *, schedulers: int = 1
) -> dict[str, BrokerSpec]:
    """What to run, by site; writes STATE/brokers.json, where the rest finds their addresses."""
    sites = [name for name, site in mesh.sites.items() if site.broker is None]
    known = KnownMeshes(state)
    ports = _ports(state / "ports.json", sites)
    specs = {
        site: BrokerSpec(
            site,
            (state / "brokers" / site).absolute(),
            amqp_port=ports[site][0],
            stream_port=ports[site][1],
            management_port=ports[site][2],
            dist_port=ports[site][3],
            epmd_port=ports[site][4],
            users=tuple(
                BrokerUser(u.name, u.password, u.tags, u.configure, u.write, u.read)
                for u in site_users(mesh, site, credentials, known.delivered_at(site))
            ),
            schedulers=schedulers,
        )
        for site in sites
    }
    write_private_brokers(
        state,
        {
            site: PrivateBroker(
                spec.amqp_port, spec.stream_port, spec.management_port, control=spec.control
            )
            for site, spec in specs.items()
        },
    )
    return specs


def _ports(file: Path, sites: list[str]) -> dict[str, list[int]]:
    """Each site's five ports: kept ones, and free ones for the sites that have none yet."""
    kept: dict[str, list[int]] = json.loads(file.read_text()) if file.exists() else {}
    new = [site for site in sites if site not in kept]
    if new:
        free = free_ports(_PORTS_OF_A_BROKER * len(new))
        for number, site in enumerate(new):
            kept[site] = free[_PORTS_OF_A_BROKER * number : _PORTS_OF_A_BROKER * (number + 1)]
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(".tmp")
        temporary.write_text(json.dumps(kept, indent=1))
        os.replace(temporary, file)
    return {site: kept[site] for site in sites}
