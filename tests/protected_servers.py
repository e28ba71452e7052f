"""ZooKeeper and Cassandra that ask for certificates and passwords, one of each."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from federation.mesh import TlsFiles
from isthmus.cluster_parts.cassandra_nodes import CassandraNodes
from isthmus.cluster_parts.server_tls import ServerTls
from isthmus.cluster_parts.zookeeper_nodes import ZookeeperNodes
from tests.certificates import Authority


def files_of(authority: Authority, folder: Path, name: str, trusted: Authority) -> TlsFiles:
    """Write a client's files: a certificate of `authority`, and whom the client trusts."""
    certificate, key = authority.issues(name=name).write(folder, name)
    ca = folder / f"{name}-ca.pem"
    ca.write_bytes(trusted.certificate)
    return TlsFiles(str(ca), str(certificate), str(key))


class Protected:
    """Both servers with one authority, the files of a node, and those of a stranger."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        authority, other = Authority("the site's"), Authority("somebody's")
        self.node = files_of(authority, folder, "node", authority)
        self.stranger = files_of(other, folder, "stranger", authority)
        self.deceived = files_of(authority, folder, "deceived", other)
        pair = authority.issues(name="server")
        file = folder / "server.pem"
        file.write_bytes(pair.key + pair.certificate)
        tls = ServerTls(file, Path(self.node.ca), self.context(self.node))
        self.zookeeper = ZookeeperNodes(folder / "zookeeper", 1, tls)
        self.cassandra = CassandraNodes(folder / "cassandra", 1, tls, asks_password=True)

    @classmethod
    @asynccontextmanager
    async def started(cls, folder: Path) -> AsyncIterator[Protected]:
        made = cls(folder)
        async with AsyncExitStack() as servers:
            await asyncio.gather(
                servers.enter_async_context(made.zookeeper),
                servers.enter_async_context(made.cassandra),
            )
            yield made

    def context(self, files: TlsFiles) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=files.ca)
        context.load_cert_chain(files.certificate, files.key)
        return context
