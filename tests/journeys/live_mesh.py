"""A whole mesh on real brokers: a virtual host a site, real node processes, real traffic."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from federation.brokers.addresses import (
    AddressBook,
    PrivateBroker,
    write_private_brokers,
)
from federation.brokers.credentials import load_or_make
from federation.mesh import Mesh
from federation.mesh_file import load_mesh
from federation.names import Names
from isthmus.brokers.config import BrokerUser
from isthmus.known.address_book import address_book
from isthmus.known.since_applied import changes_since_applied
from isthmus.site_apply import apply_sites
from isthmus.status import CARRIES, status_of
from relay.bulk_amqp import Cluster
from relay.node.site_folder import node_folders, slot_folder
from simulation.invariants import check_site
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.live_brokers import Vhost
from tests.waiting import until
from wan_proxy import LineCondition, ProxiedLine, WanProxy


class LiveMesh:
    """Made by the `live_mesh` fixture. `document` is the mesh file as a dictionary; its name and
    its sites are filled in if they are missing.
    """

    def __init__(self, folder: Path, document: dict[str, Any], vhosts: dict[str, Vhost]) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.file = folder / "mesh.yaml"
        self.vhosts = vhosts
        self.document = {"mesh": f"t{secrets.token_hex(3)}", "outage_window": "72h", **document}
        self.document.setdefault("sites", {name: {} for name in vhosts})
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.program = "isthmus"
        """The module whose `relay` the nodes are."""
        self.environment: dict[str, str] = {}
        """Besides our own, of nodes that are started from now on."""
        self.older: set[str] = set()
        """Sites whose nodes are to know no formats but those of the version before."""
        self.sources: dict[str, TrafficSource] = {}
        self.sinks: dict[str, TrafficSink] = {}
        self.lines: dict[tuple[str, str], ProxiedLine] = {}
        """Lines of the WAN proxy by (sender, receiver) of the link that goes over them."""

    # -- set-up ------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Write the file, make users, apply; again after sites were added."""
        self.write()
        self.state.mkdir(parents=True, exist_ok=True)
        mesh = self.mesh
        credentials = load_or_make(self.state, mesh)
        write_private_brokers(
            self.state,
            {
                site: PrivateBroker(
                    vhost.amqp_port,
                    vhost.stream_port,
                    vhost.broker.spec.management_port,
                    vhost=vhost.name,
                )
                for site, vhost in self.vhosts.items()
                if site in mesh.sites
            },
        )
        names = Names(mesh.name)
        for site, vhost in self.vhosts.items():
            if site not in mesh.sites:
                continue
            await vhost.add_user(
                BrokerUser(names.admin_user(site), credentials.of(site).admin, ("administrator",))
            )
        await self.apply()

    async def go_over(
        self, proxy: WanProxy, sender: str, receiver: str, condition: LineCondition
    ) -> ProxiedLine:
        """Let whichever end of the link is not at its meeting broker dial over a line of the
        proxy. The link may stand in the document's `links`, one way, with its `dial`.
        """
        links: list[dict[str, Any]] = self.document.setdefault("links", [])
        link = next((k for k in links if (k["from"], k["to"]) == (sender, receiver)), None)
        if link is None:
            links.append(link := {"from": sender, "to": receiver})
        dial = link.get("dial", "to")
        vhost = self.vhosts[{"from": sender, "to": receiver}.get(dial, dial)]
        line = await proxy.open_line(
            f"{self.document['mesh']}: {sender}-{receiver}", vhost.host, vhost.amqp_port, condition
        )
        link["via"] = f"{line.host}:{line.port}"
        self.lines[sender, receiver] = line
        return line

    def write(self) -> None:
        self.file.write_text(yaml.safe_dump(self.document, sort_keys=False))

    async def apply(self) -> None:
        reports = await apply_sites(self.book, list(self.mesh.sites), self.state)
        faults = [fault for report in reports for fault in report.faults]
        assert not faults, faults

    async def change(self, **document: Any) -> str:
        """The file says so from now on: applied, and taken up by every node; all links run again.
        What `apply` says of it.
        """
        self.document |= document
        self.write()
        since = changes_since_applied(self.mesh, list(self.mesh.sites), self.state)
        await self.apply()
        revision = self.mesh.revision
        sites = [site for site in self.mesh.sites if site in self.processes]
        await self.until_told(
            lambda told: all(told["sites"][site].get("revision") == revision for site in sites),
            f"all nodes have revision {revision}",
        )
        await self.running(sites)
        return "\n".join(since.lines())

    @property
    def mesh(self) -> Mesh:
        return load_mesh(self.file)

    @property
    def book(self) -> AddressBook:
        return address_book(self.mesh, self.state)

    def uri(self, site: str) -> str:
        return self.book.application(site).uri

    def broker(self, site: str) -> Cluster:
        """The site's own broker, of a cluster all its nodes."""
        address = self.book.application(site)
        return Cluster.of(address.uri, address.endpoints)

    # -- nodes -------------------------------------------------------------------------------

    def start(self, *groups: Sequence[str]) -> None:
        """Start a process for each group of sites; without any: one process for all sites."""
        for group in groups or [list(self.mesh.sites)]:
            command = [sys.executable, "-m", self.program, "relay", str(self.file)]
            for site in group:
                command += ["--site", site]
            if self.older.issuperset(group):
                command.append("--previous-formats")
            process = self._run(group[0], command)
            for site in group:
                self.processes[site] = process

    def start_node(self, site: str, node: str) -> None:
        """Start one of several nodes of a site: `processes` has it as SITE/NODE."""
        command = [sys.executable, "-m", self.program, "relay", str(self.file)]
        command += ["--site", site, "--node", node]
        self.processes[f"{site}/{node}"] = self._run(f"{site}-{node}", command)

    def _run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                ("setpriv", "--pdeathsig", "KILL", "--", *command, "--state", str(self.state)),
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
            )

    def start_each(self) -> None:
        """A process a site, or a node of a site."""
        for name, site in self.mesh.sites.items():
            if site.nodes is None:
                self.start([name])
            else:
                for node in site.nodes.names:
                    self.start_node(name, node)

    async def node_that_runs(self, site: str) -> str:
        """The name of the node that runs a site, or its first slot, once one does."""

        def running(told: dict[str, Any]) -> str | None:
            nodes = told["sites"][site].get("nodes", {})
            return next(
                (
                    name
                    for name, node in nodes.items()
                    if node["state"] == "running" and 0 in node["slots"]
                ),
                None,
            )

        name: str = await self.until_told(running, f"a node of {site} runs")
        return name

    async def running(self, sites: Iterable[str] = (), *, within_s: float = 150) -> None:
        """Wait until these sites (default: all) and all links between them run."""
        wanted = set(sites) or set(self.mesh.sites)

        def waiting(told: dict[str, Any]) -> list[str]:
            parts = [(name, told["sites"][name]) for name in wanted]
            parts += [
                (f"{link['from']}->{link['to']}", link)
                for link in told["links"]
                if link["from"] in wanted and link["to"] in wanted
            ]
            return [
                f"{name}: {part['state']} {part.get('reason', '')}"
                for name, part in parts
                if part["state"] not in CARRIES
            ]

        await self.until_told(
            lambda told: not waiting(told),
            lambda told: f"all run; {'; '.join(waiting(told))}",
            within_s=within_s,
        )

    def _raise_if_ended(self) -> None:
        for site, process in self.processes.items():
            if process.poll() is not None:
                raise AssertionError(f"node of {site} ended: {process.returncode}\n{self.logs()}")

    def kill(self, site: str, number: int = signal.SIGKILL) -> None:
        self.processes[site].send_signal(number)
        if number == signal.SIGKILL:
            self._ended_by_us(site).wait()

    def ledger(self, site: str, stage: str, slot: int = 0) -> list[dict[str, Any]]:
        """The rows that the ledger of a site's slot has exported of a stage; all of them once it
        stopped.
        """
        import pyarrow.parquet as pq

        nodes = node_folders(self.state / "sites" / site)
        folders = [slot_folder(node, slot) / "ledger" for node in nodes]
        # Of several nodes two may have exported the same rows: into files of one name.
        files = {
            file.relative_to(folder): file
            for folder in folders
            for file in folder.glob(f"date=*/{stage}-*.parquet")
        }
        return [
            row for name in sorted(files) for row in pq.ParquetFile(files[name]).read().to_pylist()
        ]

    def stop(self, site: str, *, within_s: float = 15) -> int:
        """SIGTERM; the exit code."""
        process = self.processes[site]
        process.terminate()
        return self._ended_by_us(site).wait(within_s)

    def _ended_by_us(self, site: str) -> subprocess.Popen[bytes]:
        """The site's process, which is not expected to run any more."""
        ended = self.processes[site]
        self.processes = {s: p for s, p in self.processes.items() if p is not ended}
        return ended

    async def dies(self, site: str, *, within_s: float = 60) -> int:
        """Wait until the site's process has ended by itself; its exit code."""
        process = self.processes[site]
        await until(
            lambda: process.poll() is not None, lambda: f"{site} ends\n{self.logs()}", within_s
        )
        return self._ended_by_us(site).wait()

    async def status(self) -> dict[str, Any]:
        return (await status_of(self.mesh, self.state)).content

    async def until_told(
        self,
        condition: Callable[[dict[str, Any]], Any],
        what: str | Callable[[dict[str, Any]], str],
        *,
        within_s: float = 60,
    ) -> Any:
        """Wait until the mesh's status, as `isthmus status --json` has it, meets the condition;
        what that gave. A node that ends of its own accord meanwhile is an error.

        `what` may be a function that says of a status how far it is; else all of it is shown.
        """
        told: dict[str, Any] = {}

        async def is_met() -> Any:
            nonlocal told
            told = await self.status()
            met = condition(told)
            if not met:
                self._raise_if_ended()
            return met

        def how_far() -> str:
            said = f"{what}: {told}" if isinstance(what, str) else what(told)
            return f"{said}\n{self.logs()}"

        return await until(is_met, how_far, within_s, every_s=0.1)

    def logs(self) -> str:
        """The last lines of every node."""
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text().splitlines()[-15:])
            for file in sorted(self.folder.glob("*.log"))
        )

    # -- traffic -----------------------------------------------------------------------------

    async def listen(
        self, sites: Iterable[str] = (), exchange: str = "orders", *, at_once: bool = True
    ) -> None:
        """A sink at each of these sites (default: all); unless `at_once`, it only has its queue
        until its `resume`.
        """
        for site in sites or self.mesh.sites:
            declared = self.mesh.exchanges[exchange]
            sink = TrafficSink(self.uri(site), self.cluster(site), declared.delivers_to)
            sink.ssl_context = self.book.application(site).ssl_context
            await (sink.start() if at_once else sink.declare())
            self.sinks[site] = sink

    def source(self, site: str, exchange: str = "orders") -> TrafficSource:
        if site not in self.sources:
            source = TrafficSource(self.uri(site), self.cluster(site), exchange)
            source.ssl_context = self.book.application(site).ssl_context
            self.sources[site] = source
        return self.sources[site]

    def cluster(self, site: str) -> str:
        return self.mesh.sites[site].cluster_id

    async def publish_everywhere(self, count: int, **how: Any) -> None:
        await asyncio.gather(*(self.source(site).publish(count, **how) for site in self.mesh.sites))

    @asynccontextmanager
    async def publishing(self, per_second: float, **how: Any) -> AsyncIterator[None]:
        """Publish at every site as long as the block lasts; see `more_published`."""
        over = asyncio.Event()

        async def publish(site: str) -> None:
            while not over.is_set():
                await self.source(site).publish(
                    max(1, int(per_second / 4)), per_second=per_second, **how
                )

        tasks = [asyncio.create_task(publish(site)) for site in self.mesh.sites]
        try:
            yield
            over.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def more_published(self, count: int, *, within_s: float = 600) -> None:
        """Wait until every site has confirmed so many more."""
        goals = {site: len(self.source(site).confirmed) + count for site in self.mesh.sites}
        await until(
            lambda: all(len(self.source(site).confirmed) >= goals[site] for site in goals),
            lambda: f"{count} more published everywhere\n{self.logs()}",
            within_s,
        )

    def missing(self) -> dict[str, int]:
        """How many messages each sink still waits for; cheap while there are many."""
        return {
            site: sum(
                sink.missing_of(source)
                for source in self.sources.values()
                if source.origin != sink.site
            )
            for site, sink in self.sinks.items()
        }

    async def arrived(self, *, within_s: float = 60) -> None:
        """Wait until every sink has every confirmed message of the other sites."""
        await until(
            lambda: not any(self.missing().values()),
            lambda: f"all there; missing: {self.missing()}\n{self.logs()}",
            within_s,
        )

    def check(self, **how: Any) -> None:
        """The invariants at every sink, for what came from elsewhere."""
        for sink in self.sinks.values():
            published = {
                source.origin: {**source.confirmed, **source.indeterminate}
                for source in self.sources.values()
                if source.origin != sink.site
            }
            arrived = sink.from_others()
            got = {(m.origin, m.number) for m in arrived}
            for source in self.sources.values():
                if source.origin in published:
                    for number in source.indeterminate:
                        if (source.origin, number) not in got:
                            del published[source.origin][number]
            check_site(sink.site, arrived, published, **how)

    async def close(self) -> None:
        for sink in self.sinks.values():
            await sink.close()
        for process in set(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in set(self.processes.values()):
            try:
                process.wait(12)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
