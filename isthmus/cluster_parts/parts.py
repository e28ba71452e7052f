"""Check that what the private servers of a site's nodes need is on this machine."""

from __future__ import annotations

import importlib.util
import shutil

from isthmus.cluster_parts import cassandra_node, zookeeper_member

CLIENTS = ("kazoo", "cassandra")
"""Modules of the servers' Python clients."""


class PartsMissing(Exception):
    """A part of ZooKeeper or Cassandra is not here; the text says what to do."""


def check_parts() -> None:
    """Raise PartsMissing where the servers, Java, or their Python clients are missing."""
    missing = [
        *(str(jars) for jars in (zookeeper_member.JARS, cassandra_node.JARS) if not jars.is_dir()),
        *(["java"] if shutil.which("java") is None else []),
        *(name for name in CLIENTS if importlib.util.find_spec(name) is None),
    ]
    if missing:
        raise PartsMissing(
            "a `cluster:` without servers wants a private ZooKeeper and Cassandra, and there is no "
            f"{', no '.join(missing)}: run `make cluster-parts` in a checkout of Isthmus, or name "
            "`zookeeper` and `cassandra` of your own in the site's `cluster:`"
        )
