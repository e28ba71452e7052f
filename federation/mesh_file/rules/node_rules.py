"""Rules for the nodes of a site that take over from each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.mesh import LEAST_CONTENT_BYTES
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import (
    ANY_NODE,
    CassandraKeys,
    ClusterKeys,
    SiteKeys,
    ZookeeperKeys,
    keyspace_of,
)
from federation.mesh_file.keys.values import PLAIN_NAME
from federation.mesh_file.problem import Violation
from federation.mesh_file.rules.certificate_pair import pair_violations
from federation.mesh_file.tree import Location

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
LEAST_SESSION_S = 1.0
MOST_SESSION_S = 60.0


def node_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check `nodes` and `cluster` of all sites."""
    owners: dict[str, str] = {}
    for name, site in keys.sites.items():
        at: Location = ("sites", name)
        yield from _names(at, site)
        yield from _content((*at, "content"), site)
        if site.cluster is None:
            continue
        yield from _cluster((*at, "cluster"), site.cluster)
        keyspace = keyspace_of(keys.mesh, name, site.cluster.cassandra)
        has_keyspace = site.cluster.cassandra is not None and site.cluster.cassandra.keyspace
        where: Location = (*at, "cluster", "cassandra")
        if not _KEYSPACE.fullmatch(keyspace):
            yield Violation(
                (*where, "keyspace") if has_keyspace else where,
                f"`{keyspace}` cannot be a keyspace",
                "write keyspace: with up to 48 small letters, digits and _, a letter first",
            )
        elif (owner := owners.setdefault(keyspace, name)) != name:
            yield Violation(
                where,
                f"the keyspace `{keyspace}` is that of site `{owner}` already",
                "write another keyspace: each site has its own",
            )


def _names(at: Location, site: SiteKeys) -> Iterator[Violation]:
    names = site.nodes or []
    if site.cluster is None and (len(names) > 1 or ANY_NODE in names):
        yield Violation(
            (*at, "nodes"),
            "several nodes share nothing through which one could go on for another",
            "add cluster: with zookeeper and cassandra, or name one node",
            True,
            depends_on=("cluster",),
        )
    if ANY_NODE in names and len(names) > 1:
        yield Violation(
            (*at, "nodes"), f"`{ANY_NODE}` beside names", f"write {ANY_NODE} alone, or the names"
        )
    for number, name in enumerate(names):
        if not re.fullmatch(PLAIN_NAME, name):
            yield Violation(
                (*at, "nodes", number),
                f"`{name}` cannot be a node's name",
                "write up to 63 letters, digits, _ and -",
            )
        elif name in names[:number]:
            yield Violation(
                (*at, "nodes", number),
                f"a second node `{name}`",
                "give each node a name of its own",
            )


def _content(at: Location, site: SiteKeys) -> Iterator[Violation]:
    if site.content is None:
        return
    if site.cluster is None:
        yield Violation(
            at,
            "`content` of a site without `cluster`: there is no Cassandra to keep it in",
            "add cluster: with zookeeper and cassandra, or take content out",
            True,
            depends_on=("cluster",),
        )
    if site.content.above < LEAST_CONTENT_BYTES:
        yield Violation(
            (*at, "above"),
            "smaller messages share their batches with others, and stay in the log",
            f"write {LEAST_CONTENT_BYTES // 1024}KiB or more",
        )


def _cluster(at: Location, cluster: ClusterKeys) -> Iterator[Violation]:
    if not LEAST_SESSION_S <= cluster.session <= MOST_SESSION_S:
        yield Violation(
            (*at, "session"),
            "a session of this length is of no use",
            f"write {LEAST_SESSION_S:g}s to {MOST_SESSION_S:g}s; 2s in a data centre",
        )
    if (cluster.zookeeper is None) != (cluster.cassandra is None):
        there, missing = "zookeeper", "cassandra"
        if cluster.zookeeper is None:
            there, missing = missing, there
        yield Violation(
            (*at, there),
            f"`{there}` without `{missing}`",
            f"add {missing}:, or take {there} out: `isthmus up` then runs both on its machine",
            depends_on=(missing,),
        )
    if cluster.zookeeper is not None:
        yield from _access((*at, "zookeeper"), cluster.zookeeper)
    if cluster.cassandra is not None:
        yield from _access((*at, "cassandra"), cluster.cassandra)


def _access(at: Location, server: ZookeeperKeys | CassandraKeys) -> Iterator[Violation]:
    """Check the password and the certificate that nodes show to a server."""
    if server.user and not server.password:
        yield Violation(
            (*at, "user"),
            "a user without a password",
            "add password: env:NAME or file:PATH",
            depends_on=("password",),
        )
    elif server.password and not server.user:
        yield Violation(
            (*at, "password"),
            "a password without a user",
            "add user:",
            depends_on=("user",),
        )
    elif server.password and not re.fullmatch(r"(env|file):\S+", server.password):
        yield Violation(
            (*at, "password"),
            "this names no password",
            "write env:NAME or file:PATH",
        )
    if server.tls is not None:
        yield from pair_violations((*at, "tls"), server.tls)
