"""Examination of connections: to the site's broker by AMQP as each user and by the stream protocol,
to the meeting broker of each link, and to each address of a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from federation.brokers.addresses import AddressBook, AddressError, AmqpAddress, StreamAddress
from federation.brokers.endpoint import Endpoint
from federation.brokers.one_cluster import (
    ONE_CLUSTER,
    NodeAnswer,
    node_answers,
    several_clusters,
)
from federation.brokers.one_cluster import (
    WITHIN_S as ANSWER_WITHIN_S,
)
from federation.mesh import Link
from federation.mesh_file import PasswordMissing
from federation.names import Names, slot_names
from federation.wording import counted
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
from relay.log.rabbit.stream_connection import stream_cluster
from relay.log.site_log import LogMissing, SiteLogError

WITHIN_S = 10.0


async def examine_connections(book: AddressBook, site: str, found: Findings) -> bool:
    """Examine all connections; False if the site's own broker cannot be reached, when the rest is
    moot.
    """
    mesh = book.mesh
    links = (*mesh.links_from(site), *mesh.links_to(site))
    here = [link for link in links if link.meeting == site]
    users = [book.deliverer(site), book.packer(site), book.keeper(site)]
    # All link ends log in as one user.
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
    """Remedies for one broker."""

    start: str
    users: str
    """Remedy for a refused user, with `{user}` and `{vhost}` to fill in."""

    @classmethod
    def of(cls, book: AddressBook, site: str, *, as_itself: bool = False) -> _Broker:
        """Return the remedies; `as_itself` for another site's link end with a `link_password`."""
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
    """Return a connection for the caller to close, or None after a finding. Of several connections
    to one broker only the first success becomes a finding.
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
    for names in slot_names(book.mesh, site):
        await _log(book.stream(site), names, found)


async def _log(address: StreamAddress, names: Names, found: Findings) -> None:
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
        found.ok("log", f"{address.where} answers, and the stream {names.log} is there")


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


async def examine_cluster(book: AddressBook, site: str, found: Findings) -> None:
    """Check that each address of a cluster answers and all lead to one cluster; nothing at a site
    with a single address of each kind. Raises AddressError, PasswordMissing.
    """
    amqp, stream = book.administrator(site), book.stream(site)
    management = book.monitoring(site)
    urls = () if management is None else management.urls
    if max(len(amqp.endpoints), len(stream.endpoints), len(urls)) < 2:
        return
    answers = await node_answers(amqp, management, Names(book.mesh.name).prefix)
    streams = await _stream_answers(stream)
    if wrong := several_clusters(answers):
        found.fault("cluster", wrong, ONE_CLUSTER)
    for answer in (*answers, *streams):
        if answer.why_not:
            found.warn(
                "cluster",
                f"{answer.address} does not answer: {answer.why_not}",
                "start that node, or take its address out; the site goes on over the others",
            )
    names = {answer.cluster for answer in answers}
    strangers = _strangers(streams, names)
    if strangers and not any(answer.why_not for answer in answers):
        found.warn(
            "cluster",
            f"{', '.join(strangers)} calls itself as no address of `broker` does",
            "see that `stream` names the nodes of `broker`, and no others",
        )
    if all(one.site != site or one.subject != "cluster" for one in found.all):
        count = counted(len(answers) + len(streams), "address", plural="addresses")
        found.ok("cluster", f"{count} lead to one cluster")


def _strangers(streams: Sequence[NodeAnswer], names: Collection[str]) -> list[str]:
    """Return stream addresses whose node names another cluster, or itself, than every node of
    `broker`.
    """
    return [
        f"{one.address} ({one.cluster!r})"
        for one in streams
        if not one.why_not and one.cluster not in names
    ]


async def _stream_answers(address: StreamAddress) -> list[NodeAnswer]:
    alone = [
        replace(address, host=place.host, port=place.port, others=()) for place in address.endpoints
    ]
    return await asyncio.gather(*map(_stream_answer, alone))


async def _stream_answer(address: StreamAddress) -> NodeAnswer:
    try:
        return NodeAnswer(
            address.where, await stream_cluster(address, "isthmus doctor", ANSWER_WITHIN_S)
        )
    except SiteLogError as error:
        return NodeAnswer(address.where, why_not=str(error))
