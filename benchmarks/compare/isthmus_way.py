"""Isthmus at its defaults: a mesh file, `isthmus apply`, and a relay process a site."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.compare.brokers import START_EACH_S, Brokers
from benchmarks.compare.layout import Layout
from benchmarks.compare.until import START_WITHIN_S, until
from benchmarks.compare.way import Lines
from federation.brokers.addresses import PrivateBroker, write_private_brokers
from federation.brokers.credentials import load_or_make
from federation.mesh_file import load_mesh
from federation.names import Names
from isthmus.brokers.config import BrokerUser

MESH = "bench"


class IsthmusMesh:
    """The nodes that all exchanges of a measurement share. `more`: keys of the mesh file."""

    def __init__(self, folder: Path, exchanges: Sequence[Mapping[str, Any]], **more: Any) -> None:
        self.exchanges = exchanges
        self._more = more
        self.file, self.state = folder / "mesh.yaml", folder / "state"
        self.nodes: dict[str, asyncio.subprocess.Process] = {}
        self._folder = folder

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        if self.nodes:
            return
        document = await self._document(layout, lines)
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))
        mesh = load_mesh(self.file)
        self.state.mkdir(parents=True, exist_ok=True)
        credentials = load_or_make(self.state, mesh)
        specs = {site: broker.spec for site, broker in brokers.by_site.items()}
        write_private_brokers(
            self.state,
            {
                site: PrivateBroker(spec.amqp_port, spec.stream_port, spec.management_port)
                for site, spec in specs.items()
            },
        )
        for site in layout.sites:
            admin = Names(MESH).admin_user(site), credentials.of(site).admin, ("administrator",)
            await brokers.make_user(site, BrokerUser(*admin))
        await self.run("apply")
        for site in layout.sites:
            group = mesh.sites[site].nodes
            for node in ("",) if group is None else group.names:
                await self.start_node(site, node)

    async def start_node(self, site: str, node: str = "") -> None:
        """Start a site's node, or one of its several: `nodes` has that as SITE/NODE."""
        name = f"{site}/{node}" if node else site
        with (self._folder / f"{name.replace('/', '-')}.log").open("ab") as log:
            self.nodes[name] = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", "--"),
                *(sys.executable, "-m", "isthmus", "relay", str(self.file)),
                *("--site", site, "--state", str(self.state)),
                *(("--node", node) if node else ()),
                stdout=log,
                stderr=log,
            )

    async def _document(self, layout: Layout, lines: Lines) -> dict[str, Any]:
        links = []
        for sender, receiver in layout.links:
            dialler, dialled = sender, receiver
            if layout.one_uplink:
                dialler, dialled = receiver, sender
            port = await lines.port_of("isthmus", dialler, dialled, shared=layout.one_uplink)
            dial = "from" if layout.one_uplink else "to"
            via = f"127.0.0.1:{port}"
            links.append({"from": sender, "to": receiver, "dial": dial, "via": via})
        exchanges = [dict(exchange) for exchange in self.exchanges]
        if layout.wants:
            for exchange in exchanges:
                exchange["from"] = list(layout.origins)
        wants = {
            site: {exchange["name"]: [key] for exchange in exchanges}
            for site, key in layout.wants.items()
        }
        return {
            "mesh": MESH,
            "outage_window": "72h",
            "topology": layout.topology,
            "exchanges": exchanges,
            "sites": {
                site: {"wants": wants[site]} if site in wants else {} for site in layout.sites
            },
            "links": links,
            **self._more,
        }

    async def ready(self) -> None:
        within_s = START_WITHIN_S + START_EACH_S * len(self.nodes)
        await until(self._runs, "the nodes and all links run", within_s)

    async def run(self, command: str, *options: str) -> str:
        """Return the output of an `isthmus` command. Raise RuntimeError with its messages if it
        fails.
        """
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", command, str(self.file)),
            *("--state", str(self.state), *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,  # warnings are no JSON
        )
        said, warned = await program.communicate()
        if program.returncode and command != "status":
            raise RuntimeError(f"isthmus {command}: {said.decode()}{warned.decode()}")
        return said.decode()

    async def status(self) -> dict[str, Any]:
        """Return the object that `isthmus status --json` prints."""
        told: dict[str, Any] = json.loads(await self.run("status", "--json"))
        return told

    async def _runs(self) -> bool:
        told = await self.status()
        parts = [*told["sites"].values(), *told["links"]]
        return all(part["state"] in ("running", "lagging") for part in parts)

    async def close(self) -> None:
        for node in self.nodes.values():
            if node.returncode is None:
                node.terminate()
        for node in self.nodes.values():
            await node.wait()
        self.nodes = {}


class IsthmusWay:
    """One exchange of the mesh."""

    servers = None

    def __init__(self, mesh: IsthmusMesh, exchange: str = "orders", name: str = "isthmus") -> None:
        self.name = name
        self.mesh = mesh
        self.publishes_to = exchange
        (declared,) = (one for one in mesh.exchanges if one["name"] == exchange)
        self.is_split = declared.get("mode") == "split"
        self.arrives_at = f"{exchange}.in" if self.is_split else exchange

    async def set_up(self, brokers: Brokers, layout: Layout, lines: Lines) -> None:
        await self.mesh.set_up(brokers, layout, lines)

    async def ready(self, brokers: Brokers, layout: Layout) -> None:
        await self.mesh.ready()

    def relay_pids(self) -> Sequence[int]:
        return [node.pid for node in self.mesh.nodes.values()]

    async def close(self) -> None:
        await self.mesh.close()
