"""Findings of `isthmus doctor` about a real ZooKeeper and a real Cassandra, and a node there."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from federation.brokers.addresses import AddressBook
from federation.mesh import TlsFiles
from isthmus.cli import app
from isthmus.cluster_parts.cassandra_nodes import SUPERUSER, CassandraNodes
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from isthmus.known.address_book import address_book
from tests.federation.meshes import mesh_of
from tests.processes import frozen
from tests.protected_servers import Protected
from tests.waiting import until

pytestmark = pytest.mark.long

WELL = {
    ("ZooKeeper", "members that serve: 1 of 1"),
    ("Cassandra", "hosts that let us in: 1 of 1"),
    ("commit log", "is written before an answer"),
    ("keyspace", "isthmus_acme_paris has 1 copy in datacenter1"),
    ("nodes", f"a runs the site, of a on {socket.gethostname()}"),
}
SERVERS = ("ZooKeeper", "Cassandra")
ALONE = "1 member: when one is away, no node takes over"


class Examined:
    """A site whose mesh file, passwords and files a test may change."""

    def __init__(self, folder: Path, zookeeper: Sequence[str], cassandra: str) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self.zookeeper: dict[str, Any] = {"hosts": [*zookeeper]}
        self.cassandra: dict[str, Any] = {"hosts": [cassandra], "replication": 1}

    def log_in(self, server: dict[str, Any], user: str, password: str, files: TlsFiles) -> None:
        tls = {"ca": files.ca, "certificate": files.certificate, "key": files.key}
        server |= {"user": user, "password": self.password_of(user), "tls": tls}
        self.set_password(user, password)

    def set_password(self, user: str, password: str) -> None:
        self._password(user).write_text(password)

    def password_of(self, user: str) -> str:
        return f"file:{self._password(user)}"

    def _password(self, user: str) -> Path:
        return self._folder / f"{user}.password"

    @property
    def text(self) -> str:
        cluster = {"zookeeper": self.zookeeper, "cassandra": self.cassandra}
        sites = {"paris": {"nodes": ["a", "b"], "cluster": cluster}, "tokyo": {}}
        return json.dumps(
            {
                "mesh": "acme",
                "topology": "complete",
                "exchanges": [{"name": "orders"}],
                "sites": sites,
            }
        )

    @property
    def book(self) -> AddressBook:
        return address_book(mesh_of(self.text), self._folder)

    @asynccontextmanager
    async def node(self) -> AsyncIterator[None]:
        """Run the site as node a does."""
        from relay.cluster.node_in_cluster import NodeInCluster
        from relay.links.uplink import Uplink
        from relay.state.node_state import Commit, NodeState

        folder = self._folder / "a"
        folder.mkdir()
        node = NodeInCluster(
            self.book, "paris", "a", folder, Uplink(asyncio.get_running_loop().time)
        )
        opening = node.machine(0).open_state(folder / "state", logging.info)
        async with aclosing(node), opening as held:
            holding = asyncio.create_task(held.hold(lambda: None, lambda: 0))
            commit = Commit()
            commit.put("of the test", b"")
            await NodeState(held.store).write_synced(commit)
            try:
                yield
            finally:
                holding.cancel()
                await asyncio.wait({holding})

    async def findings(self) -> list[Mapping[str, str]]:
        """Return the findings of `isthmus doctor`, without those of the broker, which is away."""
        file = self._folder / "mesh.yaml"
        file.write_text(self.text)
        command = ["doctor", str(file), "--site", "paris", "--json"]
        command += ["--state", str(self._folder / "state")]
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert loop.time() - began < 10, result.output
        found = json.loads(result.stdout)["findings"]
        return [one for one in found if one["site"] == "paris" and one["subject"] in SUBJECTS]

    async def wrong(self) -> dict[str, list[str]]:
        """Return the bad findings by grade, but for the missing second member and node."""
        wrong: dict[str, list[str]] = {}
        for one in await self.findings():
            if one["grade"] != "ok" and one["said"] not in KNOWN:
                wrong.setdefault(one["grade"], []).append(f"{one['subject']}: {one['said']}")
        return wrong


SUBJECTS = {subject for subject, _ in WELL} | {"schema", "clock", "state", "journal", "cluster"}
KNOWN = (
    ALONE,
    "b is not connected to ZooKeeper",
    "a is alone: when it is gone, nobody takes over",
)


async def test_a_protected_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncExitStack() as ended:
        servers = await ended.enter_async_context(Protected.started(tmp_path / "servers"))
        cassandra = servers.cassandra
        site = Examined(
            tmp_path / "site",
            servers.zookeeper.hosts,
            f"{cassandra.addresses[0]}:{cassandra.port}",
        )
        user, password = SUPERUSER
        site.log_in(site.zookeeper, "paris", "right", servers.node)
        site.log_in(site.cassandra, user, password, servers.node)

        async def is_let_in() -> bool:
            return not any("Cassandra" in one for one in (await site.wrong())["fault"])

        await until(is_let_in, "the user is made a moment after the start", 60)
        assert "nodes: none is connected to ZooKeeper" in (await site.wrong())["fault"]
        async with site.node():
            findings = await site.findings()
            assert {
                (one["subject"], one["said"]) for one in findings if one["grade"] == "ok"
            } == WELL
            not_well = [one["said"] for one in findings if one["grade"] != "ok"]
            assert sorted(not_well) == sorted(KNOWN)

            with monkeypatch.context() as older:
                older.setattr("isthmus.doctor.site_servers.ROW_FORMAT", 0)
                (fault,) = (await site.wrong())["fault"]
                assert fault.startswith("journal: its rows have format 1")

            site.set_password("paris", "wrong")
            site.set_password(user, "wrong")
            faults = (await site.wrong())["fault"]
            assert len(faults) == 2
            assert "the ensemble refuses what a node asks" in faults[0]
            assert "and/or password are incorrect" in faults[1]
            site.set_password("paris", "right")
            site.set_password(user, password)

            async def nobody_answers(*says: str) -> None:
                faults = (await site.wrong())["fault"]
                assert len(faults) == 2
                for fault, server, words in zip(faults, SERVERS, says, strict=True):
                    assert fault.startswith(f"{server}: nobody answers")
                    assert words in fault

            for files, *says in (
                (servers.deceived, "vouches for its certificate", "vouches for its certificate"),
                (servers.stranger, "does not accept our certificate", "no TLS connection"),
            ):
                site.log_in(site.zookeeper, "paris", "right", files)
                site.log_in(site.cassandra, user, password, files)
                await nobody_answers(*says)
            del site.zookeeper["tls"], site.cassandra["tls"]
            await nobody_answers("", "")
            site.log_in(site.zookeeper, "paris", "right", servers.node)
            site.log_in(site.cassandra, user, password, servers.node)

            site.zookeeper["hosts"] += ["127.0.0.1:1"]
            site.cassandra |= {"hosts": [*site.cassandra["hosts"], "127.0.0.1:1"]}
            wrong = (await site.wrong())["warning"]
            assert sum("127.0.0.1:1 does not answer" in one for one in wrong) == 2

            with frozen(servers.zookeeper.pid(0), cassandra.pid(cassandra.addresses[0])):
                await nobody_answers("no answer within 2 s", "no answer within 2 s")

            site.zookeeper["password"] = "env:NO_SUCH_PASSWORD"
            (fault,) = (await site.wrong())["fault"]
            assert fault.startswith("cluster: no password in")
            site.zookeeper["password"] = site.password_of("paris")

        await servers.zookeeper.stop()
        await cassandra.stop()
        await nobody_answers("Connect call failed", "Connect call failed")


async def test_a_commit_log_that_is_written_late(tmp_path: Path) -> None:
    late = {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}
    async with CassandraNodes(tmp_path / "cassandra", 1, settings=late) as cassandra:
        address = f"{cassandra.addresses[0]}:{cassandra.port}"
        site = Examined(tmp_path / "site", ["127.0.0.1:1"], address)
        site.cassandra |= {"replication": 3, "datacenter": "elsewhere"}
        wrong = await site.wrong()
        assert any("commitlog_sync: periodic" in one for one in wrong["warning"])
        assert any("no data centre elsewhere, but datacenter1" in one for one in wrong["fault"])
        site.cassandra |= {"datacenter": "datacenter1"}
        wrong = await site.wrong()
        assert any("is not there: the site's first node" in one for one in wrong["warning"])


async def test_an_ensemble_that_loses_its_majority(tmp_path: Path) -> None:
    async with ZookeeperNodes(tmp_path / "zookeeper", 3) as zookeeper:
        site = Examined(tmp_path / "site", zookeeper.hosts, "127.0.0.1:1")
        assert ("ZooKeeper", "members that serve: 3 of 3") in {
            (one["subject"], one["said"]) for one in await site.findings()
        }
        os.kill(zookeeper.pid(0), signal.SIGKILL)
        assert any(f"{zookeeper.hosts[0]} does not" in one for one in await said(site, "warning"))
        os.kill(zookeeper.pid(1), signal.SIGKILL)

        async def has_none() -> bool:
            faults = await said(site, "fault")
            return any("no majority: of 3 members 1 answer" in one for one in faults)

        await until(has_none, "the last member notices that it is alone", 30)


async def said(site: Examined, grade: str) -> list[str]:
    return (await site.wrong()).get(grade, [])
