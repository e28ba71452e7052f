"""Examination of who holds the locks of a site with several nodes, beside who should."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from federation.brokers.management import ManagementApi
from federation.mesh import Mesh
from federation.names import slot_names
from isthmus.doctor.finding import Findings

_AT_NODE = re.compile(r" at (\S+)")
"""Part of a connection's name that has the node's, see `RabbitBrokers`."""
_OF_A_NODE = "isthmus "
"""Beginning of the name of each node's connections; of earlier versions it has no node's name."""


async def examine_lock_holders(
    api: ManagementApi, mesh: Mesh, owners: Mapping[int, str], found: Findings
) -> None:
    """Find locks of slots whose holder is no connection of the slot's owner; `owners` are nodes by
    slot, empty where a slot has none. Raises ManagementError.
    """
    is_cluster = mesh.sites[found.site].is_cluster
    for slot, names in enumerate(slot_names(mesh, found.site)):
        owner = owners.get(slot, "")
        if not owner:
            continue
        locks = (
            (names.packer_lease, names.deliverer_lease)
            if is_cluster
            else (names.packer_lock, names.deliverer_lock)
        )
        for lock in locks:
            holder = await lock_holder(api, lock)
            if holder is not None and not _may_be_of(owner, holder):
                found.warn(
                    "locks",
                    f"{owner} should run slot {slot}, and waits for {lock}, which the connection"
                    f" {holder!r} holds",
                    "look again in a minute; if it stays, end that node, or close that connection"
                    " at the broker",
                )


def _may_be_of(node: str, connection: str) -> bool:
    at = _AT_NODE.search(connection)
    return connection.startswith(_OF_A_NODE) if at is None else at[1] == node


async def lock_holder(api: ManagementApi, lock: str) -> str | None:
    """Return the name of the connection that holds a lock, an exclusive queue or a lease; None if
    nobody does, or the broker does not know the connection yet. Raises ManagementError.
    """
    queue: Mapping[str, Any] = await api.get("queues", api.vhost, lock) or {}
    place = _place_of_holder(queue)
    if not place:
        return None
    connection = await api.get("connections", place)
    return None if connection is None else str(connection.get("user_provided_name") or place)


def _place_of_holder(queue: Mapping[str, Any]) -> str:
    """Return the name that the broker gives the connection, HOST:PORT -> HOST:PORT; empty if there
    is none: the owner's of an exclusive queue, else the active consumer's.
    """
    found = queue.get("owner_pid_details"), "name"
    for consumer in queue.get("consumer_details") or ():
        if consumer.get("activity_status") == "single_active":
            found = consumer.get("channel_details"), "connection_name"
    details, word = found
    # Without statistics the broker gives an empty list or text for details.
    return str(details.get(word, "")) if isinstance(details, Mapping) else ""
