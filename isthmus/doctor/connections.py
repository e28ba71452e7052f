"""Can the site's node connect: to its own broker by AMQP, as each of its users, and by the stream
protocol, and, for each of its links, to the broker where the link's ends meet?
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from federation.brokers.addresses import AddressBook, AddressError, AmqpAddress
from federation.brokers.endpoint import Endpoint
from federation.mesh import Link
from federation.mesh_file import PasswordMissing
from federation.names import Names
from isthmus.doctor.cluster import examine_cluster
from isthmus.doctor.finding import Findings
from relay.bulk_amqp import (
    AuthenticationFailed,
    BulkAmqpError,
    Cluster,
    Connection,
    ConnectionFailed,
    connect,
)
from relay.log.rabbit.rabbit_log import open_rabbit_log
from relay.log.site_log import LogMissing, SiteLogError

WITHIN_S = 10.0


async def examine_connections(book: AddressBook, site: str, found: Findings) -> bool:
    """Whether the site's own broker can be reached by AMQP; if not, the rest need not be asked."""
    mesh = book.mesh
    links = (*mesh.links_from(site), *mesh.links_to(site))
    here = [link for link in links if link.meeting == site]
    users = [book.deliverer(site), book.packer(site), book.keeper(site)]
    # They all log in as one.
    users += [book.link_end(link, site) for link in here[:1]]
    broker = _Broker.of(book, site)
    for number, address in enumerate(dict.fromkeys(users)):
        connection = await _connected(address, broker, "broker", found, is_first=not number)
        if connection is not None:
            await connection.close()
        elif not number:
            return False
    await _stream(book, site, found)
    await examine_cluster(book, site, found)
    await asyncio.gather(
        *(_link_end(book, link, site, found) for link in links if link.meeting != site)
    )
    return True


@dataclass(frozen=True, slots=True)
class _Broker:
    """What is to be done about one."""

    start: str
    users: str
    """... where a user is refused; `{user}` and `{vhost}` stand for what they are."""

    @classmethod
    def of(cls, book: AddressBook, site: str, *, as_itself: bool = False) -> _Broker:
        """`as_itself`: for another site's end of a link, with a `link_password`."""
        control = book.control(site)
        apply = f"run `isthmus apply --site {site}`, which makes its users and their rights"
        broker = book.mesh.sites[site].broker
        if broker is None:
            return cls(
                f"`isthmus up` runs it; if it ends again, STATE/brokers/{site}/log says why", apply
            )
        start = "start the broker, or correct host and port; look at firewalls in between"
        if as_itself:
            return cls(start, f"{apply}, or prints how; or correct `link_password`")
        if broker.separate_users:
            return cls(start, f"{apply}; its secrets.json has to be the node's")
        return cls(
            start,
            "set the right user and password, or let the broker's administrator make the virtual "
            f"host and give the user rights in it: {control} set_permissions -p {{vhost}} {{user}} "
            "'.*' '.*' '.*'",
        )


async def _connected(
    address: AmqpAddress, broker: _Broker, subject: str, found: Findings, *, is_first: bool = True
) -> Connection | None:
    """A connection, to be closed; None, and said why, if there is none to be had. Of several to one
    broker only the first is told of if all is well.
    """
    try:
        connection = await connect(
            Cluster.of(address.uri, address.endpoints),
            name="isthmus doctor",
            ssl_context=address.ssl_context,
            timeout=WITHIN_S,
        )
    except AuthenticationFailed as error:
        found.fault(
            subject,
            f"{address.where} refuses user {address.user!r} in virtual host {address.vhost!r}: "
            f"{error}",
            broker.users.format(vhost=address.vhost, user=address.user),
        )
        return None
    except ConnectionFailed as error:
        found.fault(
            subject,
            f"no AMQP connection: {error}",
            broker.start + ("; look at its certificate too" if address.tls else ""),
        )
        return None
    if not is_first:
        return connection
    node = Endpoint(connection.address.host, connection.address.port)
    found.ok(subject, f"{address.at(node).public_uri} answers")
    if connection.blocked:
        found.warn(
            subject, f"it blocks publishers: {connection.blocked}", "free memory or disk there"
        )
    return connection


async def _stream(book: AddressBook, site: str, found: Findings) -> None:
    address, names = book.stream(site), Names(book.mesh.name)
    try:
        log = await open_rabbit_log(
            address,
            names.log,
            mark_name=names.deliverer_mark,
            name="isthmus doctor",
            deadline_s=WITHIN_S,
        )
    except LogMissing:
        found.fault("log", f"the stream {names.log} is not there", "run `isthmus apply`")
    except SiteLogError as error:
        found.fault(
            "log",
            f"the stream listener {address.where} cannot be used: {error}",
            "rabbitmq-plugins enable rabbitmq_stream; or correct `stream:`, or what the broker "
            "advertises as its stream host and port",
        )
    else:
        await log.close()
        found.ok("log", f"{address.where} answers, and the stream is there")


async def _link_end(book: AddressBook, link: Link, site: str, found: Findings) -> None:
    subject = f"link {link.name}"
    try:
        address = book.link_end(link, site)
    except (AddressError, PasswordMissing) as error:
        found.fault(subject, str(error), f"the link meets at {link.meeting}'s broker: mend that")
        return
    as_itself = book.mesh.sites[site].link_password is not None
    broker = _Broker.of(book, link.meeting, as_itself=as_itself)
    connection = await _connected(address, broker, subject, found)
    if connection is None:
        return
    names = Names(book.mesh.name)
    try:
        channel = await connection.channel()
        for strand in book.mesh.strands(link):
            for exchange in (names.link_data(strand), names.link_acks(strand)):
                await channel.declare_exchange(exchange, passive=True)
    except BulkAmqpError as error:
        found.fault(
            subject,
            f"its exchanges at {link.meeting} cannot be used: {error}",
            f"run `isthmus apply --site {link.meeting}`",
        )
    finally:
        await connection.close()
