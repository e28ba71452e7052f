"""The seam to all brokers that a node connects to: its own site's, and those where its links meet.

Twins: `RabbitBrokers`, and `simulation.memory_brokers.MemoryBrokers`. What is connected has a seam
and a contract suite of its own each: `site_log`, `egress`, `local_exchange`, `transport`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from federation.brokers.addresses import AddressBook
from federation.names import Names
from relay.bulk_amqp import Connection, connect
from relay.delivery.local_exchange import LocalExchange
from relay.delivery.rabbit_exchange import open_exchange
from relay.links.rabbit_transport import LinkEndAddress, RabbitLinkConnector
from relay.links.transport import LinkConnector
from relay.log.rabbit_log import open_rabbit_log
from relay.log.site_log import SiteLog
from relay.packing.egress import Egress
from relay.packing.rabbit_egress import connect_egress


class Brokers(Protocol):
    """Makes new connections. All raise AddressError and PasswordMissing where the book has no
    address, and else what their own seams say.
    """

    async def open_log(self, book: AddressBook, site: str) -> SiteLog:
        """To the site's own log."""
        ...

    async def open_egress(self, book: AddressBook, site: str) -> Egress:
        """To the site's own egress queues."""
        ...

    async def open_exchange(self, book: AddressBook, site: str) -> LocalExchange:
        """To the site's own exchanges; it holds the deliverer's lock."""
        ...

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        """To the site's own broker, for what the node itself wants of it. Raises BulkAmqpError,
        OSError.
        """
        ...

    def link(self, address: LinkEndAddress) -> LinkConnector:
        """What connects one end of a link, again and again."""
        ...


@dataclass(frozen=True, slots=True)
class RabbitBrokers:
    """RabbitMQ's."""

    async def open_log(self, book: AddressBook, site: str) -> SiteLog:
        names = Names(book.mesh.name)
        return await open_rabbit_log(
            book.stream(site),
            names.log,
            mark_name=names.deliverer_mark,
            name=f"isthmus {site} log",
        )

    async def open_egress(self, book: AddressBook, site: str) -> Egress:
        address = book.node(site)
        return await connect_egress(
            address.uri,
            Names(book.mesh.name).packer_lock,
            name=f"isthmus {site} packer",
            ssl_context=address.ssl_context,
        )

    async def open_exchange(self, book: AddressBook, site: str) -> LocalExchange:
        address = book.node(site)
        return await open_exchange(
            address.uri,
            lock=Names(book.mesh.name).deliverer_lock,
            name=f"isthmus {site} deliverer",
            ssl_context=address.ssl_context,
        )

    async def connect(self, book: AddressBook, site: str, purpose: str) -> Connection:
        address = book.node(site)
        return await connect(
            address.uri, name=f"isthmus {site} {purpose}", ssl_context=address.ssl_context
        )

    def link(self, address: LinkEndAddress) -> LinkConnector:
        return RabbitLinkConnector(address)
