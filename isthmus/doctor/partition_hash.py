"""Examination of the hash by which a site's broker spreads messages over partitions."""

from __future__ import annotations

import re

from aio_pika.exceptions import AMQPException

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import PasswordMissing
from federation.brokers.hash_probe import (
    ENABLE_HASH,
    KNOWN_HASH,
    MEND_HASH,
    NO_HASH,
    OTHER_HASH,
    PROBED_KEYS,
    has_partitions,
    lacks_hash,
    probe_hash,
)
from federation.brokers.management import ManagementApi, ManagementError
from federation.mesh import Mesh
from federation.names import Names
from isthmus.doctor.finding import Findings

_SUBJECT = "partitions"
_UNSTABLE_ON_KHEPRI = (4, 0), (4, 3)
"""Releases, from the first until before the second, whose x-modulus-hash counts queues in an order
that a restart may change where the broker keeps its metadata in Khepri."""
_KHEPRI = "khepri_db"


async def examine_hash(book: AddressBook, site: str, found: Findings) -> None:
    """Examine the hash where exchanges of the site have partitions, by sending known keys through
    queues of the probe's own.
    """
    if not has_partitions(book.mesh, site):
        return
    try:
        digest = await probe_hash(book.administrator(site), Names(book.mesh.name).prefix)
    except (AddressError, PasswordMissing, AMQPException, OSError) as error:
        if isinstance(error, AMQPException | OSError) and lacks_hash(error):
            found.fault(_SUBJECT, NO_HASH, ENABLE_HASH)
        else:
            found.unknown(_SUBJECT, f"the broker's hash could not be probed: {error}")
        return
    if digest != KNOWN_HASH:
        found.fault(_SUBJECT, OTHER_HASH, MEND_HASH)
    else:
        found.ok(_SUBJECT, f"{PROBED_KEYS} known keys go to the partitions that others use")


async def examine_spreading(api: ManagementApi, book: AddressBook, found: Findings) -> None:
    """Look for what changes, or may change, the partitions of keys: queues of others, and a restart
    of the broker. Raises ManagementError.
    """
    if not has_partitions(book.mesh, found.site):
        return
    await _others(api, book.mesh, found)
    await _stability(api, found)


async def _others(api: ManagementApi, mesh: Mesh, found: Findings) -> None:
    names = Names(mesh.name)
    own = {
        (names.partitions(exchange.name), queue)
        for exchange in mesh.exchanges.values()
        for queue in names.egress_queues(exchange)
    }
    for binding in await api.get("bindings", api.vhost) or []:
        ends = binding["source"], binding["destination"]
        if ends[0].startswith(names.partitions_prefix) and ends not in own:
            found.fault(
                _SUBJECT,
                f"{binding['destination_type']} {ends[1]} is bound to {ends[0]}, which changes the "
                "partitions of keys and takes messages away",
                "unbind it, and bind it to the exchange of the mesh instead; after a change of "
                "`partitions`, run `isthmus apply`",
            )


async def _stability(api: ManagementApi, found: Findings) -> None:
    """Warn of a broker whose restart may change the partitions of keys; say nothing where its user
    may not see what the broker keeps its metadata in.
    """
    overview = await api.get("overview") or {}
    release = tuple(map(int, re.findall(r"\d+", str(overview.get("rabbitmq_version", "")))[:2]))
    first, end = _UNSTABLE_ON_KHEPRI
    if not first <= release < end:
        return
    try:
        flags = await api.get("feature-flags") or []
    except ManagementError:
        return
    if any(flag["name"] == _KHEPRI and flag["state"] == "enabled" for flag in flags):
        found.warn(
            _SUBJECT,
            "before 4.3 a broker with its metadata in Khepri may send keys to other partitions "
            "after a restart",
            "upgrade to RabbitMQ 4.3 before you rely on the order of a partitioned exchange",
        )
