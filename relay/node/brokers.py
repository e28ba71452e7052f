"""Seam to all brokers that a node connects to: its own site's, and those where its links meet.

Twins: `RabbitBrokers`, and `simulation.memory_brokers.MemoryBrokers`. Each connection has a seam
and a contract suite of its own: `site_log`, `egress`, `local_exchange`, `transport`.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from federation.brokers.address_ring import AddressRings
from federation.brokers.addresses import AddressBook, AddressError, AmqpAddress, Listener
from federation.brokers.credentials import PasswordMissing
from federation.brokers.endpoint import Endpoint
from federation.names import Names
from relay.bulk_amqp import (
    AuthenticationFailed,
    Cluster,
    Connection,
    ConnectionFailed,
    connect,
)
from relay.bulk_amqp.connection import HEARTBEAT_S
from relay.delivery.local_exchange import LocalClosed, LocalExchange
from relay.delivery.rabbit_exchange import open_exchange
from relay.lease import HOLDER_BYTES, USUAL_TIMES, LeaseName, LeaseTimes
from relay.links.transport.link_end import LinkConnector, LinkEnd, LinkUnreachable
from relay.links.transport.rabbit import LinkEndAddress, RabbitLinkConnector
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.site_log import LogClosed, LogRefused, SiteLog
from relay.packing.egress import Egress, EgressClosed, EgressRefused
from relay.packing.rabbit_egress import connect_egress

LOG = "log"
EGRESS = "egress"
EXCHANGE = "exchange"
OWN_PURPOSES = (EGRESS, EXCHANGE, LOG)
"""Purposes of a site's own connections, beside those that `connect` is given."""


class Brokers(Protocol):
    """Makes new connections. Each method raises the errors of its own seam; if the book has no
    address at present, the error for a broker that is away, with the reason.
    """

    async def open_log(self, book: AddressBook, site: str) -> SiteLog:
        """Connect to the site's own log."""
        ...

    async def open_egress(self, book: AddressBook, site: str) -> Egress:
        """Connect to the site's own egress queues."""
        ...

    async def open_exchange(self, book: AddressBook, site: str) -> LocalExchange:
        """Connect to the site's own exchanges, holding the deliverer's lock."""
        ...

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        """Connect to the site's own broker, to count messages in its queues or to take back what
        was put aside. Raises BulkAmqpError, OSError.
        """
        ...

    def link(self, address: LinkEndAddress) -> LinkConnector:
        """Return a connector for one end of a link, to be used again and again."""
        ...

    def in_use(self) -> Mapping[str, str]:
        """Host and port of the present connections by purpose (LOG, EGRESS, EXCHANGE, the name of a
        link's end), where there are several to choose from.
        """
        ...


class RabbitBrokers:
    """RabbitMQ brokers. `home` is the site that connects: different sites begin at different nodes
    of a cluster. `holder` is the holder of a cluster's leases, see `holder_of`, and `lease_times`
    their times. `lock_heartbeat_s`: interval of heartbeats on connections with a lock, which a
    broker frees when it misses two. `slot` is the site's slot that the connections serve, `node`
    the name of the node among several: both are in the names of the site's own connections, as
    `isthmus paris.s2 packer at paris-b`.
    """

    def __init__(
        self,
        home: str = "",
        holder: bytes | None = None,
        lock_heartbeat_s: int = HEARTBEAT_S,
        slot: int = 0,
        lease_times: LeaseTimes = USUAL_TIMES,
        node: str = "",
    ) -> None:
        self._slot = slot
        self._node = node
        self._lease_times = lease_times
        self._lock_heartbeat_s = lock_heartbeat_s
        self._rings: AddressRings[Endpoint] = AddressRings(home)
        self._holder = holder or os.urandom(HOLDER_BYTES)

    async def open_log(self, book: AddressBook, site: str) -> SiteLog:
        names = self._names(book)
        with _no_address_is(LogClosed):
            address = book.stream(site)
            with _refused(address, LogRefused):
                return await open_rabbit_log(
                    address,
                    names.log,
                    mark_name=names.deliverer_mark,
                    name=self._label(site, "log"),
                    ring=self._rings.of(LOG),
                    is_replicated=book.mesh.sites[site].is_cluster,
                )

    async def open_egress(self, book: AddressBook, site: str) -> Egress:
        with _no_address_is(EgressClosed):
            address = book.packer(site)
            with _refused(address, EgressRefused):
                return await connect_egress(
                    self._cluster(EGRESS, address),
                    self._names(book).packer_lock,
                    name=self._label(site, "packer"),
                    ssl_context=address.ssl_context,
                    lease=self._lease(book, site, self._names(book).packer_lease),
                    heartbeat_s=self._lock_heartbeat_s,
                )

    async def open_exchange(self, book: AddressBook, site: str) -> LocalExchange:
        with _no_address_is(LocalClosed):
            address = book.deliverer(site)
            with _refused(address, LocalClosed):
                return await open_exchange(
                    self._cluster(EXCHANGE, address),
                    lock=self._names(book).deliverer_lock,
                    name=self._label(site, "deliverer"),
                    ssl_context=address.ssl_context,
                    lease=self._lease(book, site, self._names(book).deliverer_lease),
                    heartbeat_s=self._lock_heartbeat_s,
                )

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        with _no_address_is(ConnectionFailed):
            address = book.keeper(site)
            return await connect(
                self._cluster(purpose, address),
                name=self._label(site, purpose),
                ssl_context=address.ssl_context,
            )

    def link(self, address: LinkEndAddress) -> LinkConnector:
        return RabbitLinkConnector(address, self._rings.of(address.name))

    def in_use(self) -> Mapping[str, str]:
        return {purpose: str(place) for purpose, place in self._rings.in_use().items()}

    def _label(self, site: str, purpose: str) -> str:
        slot = f".s{self._slot}" if self._slot else ""
        at = f" at {self._node}" if self._node else ""
        return f"isthmus {site}{slot} {purpose}{at}"

    def _names(self, book: AddressBook) -> Names:
        return Names(book.mesh.name, self._slot)

    def _cluster(self, purpose: str, address: AmqpAddress) -> Cluster:
        return Cluster.of(address.uri, address.endpoints, self._rings.of(purpose))

    def _lease(self, book: AddressBook, site: str, queue: str) -> LeaseName | None:
        if not book.mesh.sites[site].is_cluster:
            return None
        return LeaseName(queue, self._holder, self._lease_times)


@contextmanager
def _refused(address: Listener, refusal: type[Exception]) -> Iterator[None]:
    """Add to a refusal the user that was refused, which a broker does not report. Each purpose has
    its own user, and a node may have been upgraded before `apply` has made them.
    """
    try:
        yield
    except refusal as error:
        if not isinstance(error, LogRefused) and not isinstance(
            error.__cause__, AuthenticationFailed
        ):
            raise
        text = f"{error} (as user {address.user!r}: `isthmus apply` makes users and their rights)"
        raise type(error)(text) from error


@contextmanager
def _no_address_is(error: Callable[[str], Exception]) -> Iterator[None]:
    """Raise `error` for a missing address or password. Passwords are looked up at each connection,
    so that a new one is taken up; a file that is away while somebody replaces it is no reason to
    stop.
    """
    try:
        yield
    except (AddressError, PasswordMissing) as missing:
        raise error(str(missing)) from missing


def holder_of(folder: Path, boot_id: str) -> bytes:
    """Name of the lease holder that runs in a folder of this machine: the same for all runs there
    in one boot (`boot_id`), each of which waits for the end of its predecessor. A machine of the
    same host name elsewhere, such as a container, has another name.
    """
    place = f"{socket.gethostname()}\0{boot_id}\0{folder.absolute()}"
    return hashlib.sha256(place.encode()).digest()[:HOLDER_BYTES]


class PresentConnector:
    """Connects to the present address, looked up at each connection: a private broker may not exist
    yet.
    """

    def __init__(self, present: Callable[[], LinkConnector]) -> None:
        self._present = present

    async def connect(self) -> LinkEnd:
        """Raises LinkTransportError."""
        try:
            connector = self._present()
        except (AddressError, PasswordMissing) as error:
            raise LinkUnreachable(str(error)) from error
        return await connector.connect()
