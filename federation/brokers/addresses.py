"""Addresses: where, and as which user, each part of a node, each link's end and each application
connects.

Private brokers listen on loopback ports that `isthmus up` chooses and records in
STATE/brokers.json; the mesh file gives the addresses of a site's own broker. At a private broker
each purpose of the site's node has its own user (`users.py`), and each site's link ends have
another, so that the broker can vouch for them. At a site's own broker all connect as the user of
its `broker:` address, except with `users: separate`, and except for the ends of other sites that
have a `link_password`.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from federation import durable_file
from federation.brokers.broker_uri import (
    bracketed,
    parse_amqp,
    parse_host_port,
    parse_management,
    parse_stream,
)
from federation.brokers.credentials import NODE_KINDS, Credentials, resolve_password
from federation.brokers.endpoint import Endpoint
from federation.brokers.tls import TlsFilesBroken, client_context
from federation.mesh import SYSTEM_TRUST, BrokerAddress, BrokerAuth, Link, Mesh, NodeGroup, TlsFiles
from federation.names import Names

BROKERS_FILE = "brokers.json"
SERVERS_FILE = "servers.json"
CONTROL = "rabbitmqctl"
_LOOPBACK = "127.0.0.1"
_FORMAT = 1


class AddressError(Exception):
    """Root of the errors of this module.

    AddressError
    +- BrokerNotKnown      no record of where a private broker listens
    +- ServersNotKnown     no record of where the private ZooKeeper and Cassandra listen
    +- BrokersFileBroken   STATE/brokers.json or STATE/servers.json cannot be read
    +- TlsUnusable         a file of the site's `tls:` cannot be used
    """


class BrokerNotKnown(AddressError):
    """STATE/brokers.json lacks the private broker of `site`: run `isthmus up` first, or give the
    site a `broker:`.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        super().__init__(
            f"where the private broker of {site!r} listens is not known: run `isthmus up` first, "
            "with the same --state, or give the site a `broker:` in the mesh file"
        )


class ServersNotKnown(AddressError):
    """STATE/servers.json is not there, and the `cluster:` of `site` names no servers: run `isthmus
    up` first, or name both.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        super().__init__(
            f"where the private ZooKeeper and Cassandra of {site!r} listen is not known: run "
            "`isthmus up` first, with the same --state, or name both in the site's `cluster:`"
        )


class TlsUnusable(AddressError):
    """A file of `tls:` cannot be used: correct the file or the key."""


class BrokersFileBroken(AddressError):
    """STATE/brokers.json or STATE/servers.json cannot be read: delete the file and run `isthmus up`
    again.
    """

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}; delete it and run `isthmus up` again")


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Ports of one node of a private cluster."""

    amqp_port: int
    stream_port: int
    management_port: int


@dataclass(frozen=True, slots=True)
class PrivateBroker:
    """Listeners of a private broker, of a cluster its first node. Several sites may share a broker
    by virtual hosts.
    """

    amqp_port: int
    stream_port: int
    management_port: int
    host: str = _LOOPBACK
    vhost: str = "/"
    control: str = CONTROL
    """Beginning of a shell command for the broker's administrator: `rabbitmqctl` does not find the
    node by itself.
    """
    others: tuple[BrokerPorts, ...] = ()
    """Listeners of the cluster's other nodes, at the same host."""

    @property
    def nodes(self) -> tuple[BrokerPorts, ...]:
        """Listeners of all nodes, the first node first."""
        own = BrokerPorts(self.amqp_port, self.stream_port, self.management_port)
        return own, *self.others


@dataclass(frozen=True, slots=True)
class PrivateServers:
    """Ports of the private ZooKeeper and Cassandra, on loopback, that all sites of the mesh share
    whose `cluster:` names none.
    """

    zookeeper_port: int
    cassandra_port: int
    storage_port: int
    """Port of Cassandra for other nodes of its own; there are none."""

    @property
    def zookeeper(self) -> str:
        """HOST:PORT of the ZooKeeper."""
        return f"{_LOOPBACK}:{self.zookeeper_port}"

    @property
    def cassandra(self) -> str:
        """HOST:PORT of the Cassandra."""
        return f"{_LOOPBACK}:{self.cassandra_port}"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener of a broker (of a cluster, any of `endpoints`) and the login there."""

    host: str
    port: int
    vhost: str
    user: str
    password: str = field(repr=False)
    tls: bool = False
    files: TlsFiles = SYSTEM_TRUST
    is_external: bool = False
    """True if the certificate of `files` is the login, without a password."""
    others: tuple[Endpoint, ...] = ()
    """Endpoints of this listener at the cluster's other nodes."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Endpoints of this listener at all nodes, in the order of the mesh file."""
        return Endpoint(self.host, self.port), *self.others

    @property
    def where(self) -> str:
        """Host and port of every node, for messages."""
        return ", ".join(map(str, self.endpoints))

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS context, or None without TLS. Raises TlsUnusable."""
        return context_of(self.files) if self.tls else None


@dataclass(frozen=True, slots=True)
class AmqpAddress(Listener):
    """Address and login for AMQP."""

    @property
    def uri(self) -> str:
        """URI with the password: not for logs."""
        if self.is_external:
            return self._uri(f"{quote(self.user, safe='')}@") + "?auth_mechanism=external"
        return self._uri(f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@")

    def at(self, endpoint: Endpoint) -> AmqpAddress:
        """Return this login narrowed to one endpoint."""
        return replace(self, host=endpoint.host, port=endpoint.port, others=())

    @property
    def public_uri(self) -> str:
        """URI without user and password; of a cluster, the first node's."""
        return self._uri("")

    def _uri(self, login: str) -> str:
        scheme = "amqps" if self.tls else "amqp"
        vhost = quote(self.vhost, safe="")
        return f"{scheme}://{login}{bracketed(self.host)}:{self.port}/{vhost}"


@dataclass(frozen=True, slots=True)
class StreamAddress(Listener):
    """Address and login for the stream protocol."""


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """Address and login of the management HTTP API. `url` has no path and no login. Any node of a
    cluster answers for the whole cluster, at its entry of `urls`.
    """

    url: str
    vhost: str
    user: str
    password: str = field(repr=False)
    files: TlsFiles = SYSTEM_TRUST
    other_urls: tuple[str, ...] = ()

    @property
    def urls(self) -> tuple[str, ...]:
        """URLs of all nodes, in the order of the mesh file."""
        return self.url, *self.other_urls

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """TLS context, or None without TLS. Raises TlsUnusable."""
        return context_of(self.files) if self.url.startswith("https:") else None


def _none_known(_: str) -> Collection[str]:
    return ()


@dataclass(frozen=True, slots=True)
class AddressBook:
    """Addresses of a mesh. `environ` resolves `env:` passwords.

    Methods raise BrokerNotKnown for a private broker without a record, PasswordMissing for a
    password that the mesh file names in vain, KeyError for an unknown site.
    """

    mesh: Mesh
    credentials: Credentials
    private: Mapping[str, PrivateBroker]
    environ: Mapping[str, str] = field(repr=False)
    formerly_delivered: Callable[[str], Collection[str]] = field(
        default=_none_known, repr=False, compare=False
    )
    """Exchanges that earlier revisions delivered at a site, see `users.site_users`."""
    servers: PrivateServers | None = None
    """Private ZooKeeper and Cassandra; None where `isthmus up` has run neither."""

    def nodes_of(self, site: str) -> NodeGroup:
        """Return the nodes of a site with a `cluster:`, with the servers that they share. Raises
        ServersNotKnown.
        """
        group = self.mesh.sites[site].nodes
        assert group is not None, f"{site} has no cluster"
        if not group.has_private_servers:
            return group
        if self.servers is None:
            raise ServersNotKnown(site)
        return replace(
            group,
            zookeeper=replace(group.zookeeper, hosts=(self.servers.zookeeper,)),
            cassandra=replace(group.cassandra, hosts=(self.servers.cassandra,)),
        )

    def deliverer(self, site: str) -> AmqpAddress:
        """Return the address of a site's broker for its deliverer."""
        return self._private_or_own(site, self._names.relay_user(site), "relay")

    def packer(self, site: str) -> AmqpAddress:
        """Return the address of a site's broker for its packer."""
        return self._private_or_own(site, self._names.packer_user(site), "packer")

    def keeper(self, site: str) -> AmqpAddress:
        """Return the address of a site's broker for counting waiting messages and taking back what
        was put aside.
        """
        return self._private_or_own(site, self._names.keeper_user(site), "keeper")

    def administrator(self, site: str) -> AmqpAddress:
        """Return the address of a site's broker for `apply`."""
        return self._private_or_own(site, self._names.admin_user(site), "admin")

    def listeners(self, site: str) -> tuple[Endpoint, ...]:
        """Return host and port of each node of a site's broker. Sites with a common listener share
        a broker, and so the users declared there.
        """
        broker = self.mesh.sites[site].broker
        if broker is not None:
            return _amqp_endpoints(broker)
        private = self._private(site)
        return tuple(Endpoint(private.host, ports.amqp_port) for ports in private.nodes)

    def control(self, site: str) -> str:
        """Return the beginning of a shell command for the administrator of a site's broker, to be
        run where the broker runs.
        """
        private = self.mesh.sites[site].broker is None
        return self._private(site).control if private else CONTROL

    def stream(self, site: str) -> StreamAddress:
        """Return the address of a site's log for the site's node."""
        amqp = self._private_or_own(site, self._names.log_user(site), "log")
        broker = self.mesh.sites[site].broker
        if broker is None:
            private = self._private(site)
            (host, port, _), *others = (
                Endpoint(private.host, ports.stream_port) for ports in private.nodes
            )
            tls = False
        else:
            listeners = [parse_stream(uri) for uri in broker.streams]
            (host, port, _), *others = (Endpoint(uri.host, uri.port) for uri in listeners)
            tls = listeners[0].tls
        if broker is not None and broker.password and amqp.is_external:
            # A password goes first: streams of older brokers know no login by certificate.
            password, is_external = resolve_password(broker.password, self.environ), False
        else:
            password, is_external = amqp.password, amqp.is_external
        where, login = (host, port, amqp.vhost), (amqp.user, password)
        return StreamAddress(*where, *login, tls, amqp.files, is_external, tuple(others))

    def application(self, site: str) -> AmqpAddress:
        """Return the address of a site's broker for its applications. At a site's own broker
        applications should have users of their own; the relay's user is returned there, since no
        other is known.
        """
        return self._private_or_own(site, self._names.application_user(site), "app")

    def link_end(self, link: Link, site: str) -> AmqpAddress:
        """Return the address of the link's meeting broker for the end at `site`, its sender or
        receiver.
        """
        if site not in (link.sender, link.receiver):
            raise ValueError(f"{site!r} is no end of the link {link.name}")
        user, broker = vouched_user(self.mesh, link, site), self.mesh.sites[link.meeting].broker
        reference = self.mesh.sites[site].link_password
        if broker is not None and site != link.meeting:
            # Without `link_password` the end logs in as that broker's own user.
            address = (
                self._own(broker)
                if reference is None
                else self._own(replace(broker, password=reference), user)
            )
        else:
            address = self._private_or_own(link.meeting, user, "link", owner=site)
        if link.via is None or site == link.meeting:
            return address
        host, port = parse_host_port(link.via)
        return replace(address, host=host, port=port, others=())

    def management(self, site: str) -> ManagementAddress | None:
        """Return the management API of a site's broker for `apply`, or None if the mesh file gives
        none.
        """
        return self._management(site, self.administrator)

    def monitoring(self, site: str) -> ManagementAddress | None:
        """Return the management API of a site's broker for reading, or None if the mesh file gives
        none.
        """
        return self._management(site, self._monitor)

    def _monitor(self, site: str) -> AmqpAddress:
        return self._private_or_own(site, self._names.monitor_user(site), "monitor")

    @property
    def _names(self) -> Names:
        return Names(self.mesh.name)

    def _management(
        self, site: str, address: Callable[[str], AmqpAddress]
    ) -> ManagementAddress | None:
        broker = self.mesh.sites[site].broker
        if broker is not None and broker.management is None:
            return None
        login_as = address(site)
        if broker is None or broker.management is None:
            private = self._private(site)
            url, *others = (
                f"http://{bracketed(private.host)}:{ports.management_port}"
                for ports in private.nodes
            )
        else:
            listeners = map(parse_management, broker.managements)
            url, *others = (listener.as_uri("http", "https") for listener in listeners)
            if login_as.is_external:
                # The management API takes no certificate for a login.
                password = resolve_password(broker.password, self.environ)
                login_as = replace(login_as, password=password)
        login = login_as.vhost, login_as.user, login_as.password
        return ManagementAddress(url, *login, login_as.files, tuple(others))

    def _private_or_own(
        self, site: str, user: str, kind: str, owner: str | None = None
    ) -> AmqpAddress:
        broker = self.mesh.sites[site].broker
        is_made = broker is None or (broker.separate_users and kind in NODE_KINDS)
        if broker is not None and not is_made:
            return self._own(broker)
        password: str = getattr(self.credentials.of(owner or site), kind)
        if broker is not None:
            uri = parse_amqp(broker.amqp)
            where = uri.host, uri.port, uri.vhost
            others = _amqp_endpoints(broker)[1:]
            return AmqpAddress(*where, user, password, uri.tls, broker.tls, others=others)
        private = self._private(site)
        where = private.host, private.amqp_port, private.vhost
        endpoints = tuple(Endpoint(private.host, ports.amqp_port) for ports in private.others)
        return AmqpAddress(*where, user, password, others=endpoints)

    def _own(self, broker: BrokerAddress, user: str = "") -> AmqpAddress:
        """Return the address of a site's own broker. `user` replaces the address's user."""
        uri = parse_amqp(broker.amqp)
        # A user of its own logs in with its password.
        is_external = broker.auth is BrokerAuth.EXTERNAL and not user
        password = "" if is_external else resolve_password(broker.password, self.environ)
        where, login = (uri.host, uri.port, uri.vhost), (user or uri.user, password)
        others = _amqp_endpoints(broker)[1:]
        return AmqpAddress(*where, *login, uri.tls, broker.tls, is_external, others)

    def _private(self, site: str) -> PrivateBroker:
        if site not in self.private:
            raise BrokerNotKnown(site)
        return self.private[site]


def _amqp_endpoints(broker: BrokerAddress) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(uri.host, uri.port) for uri in map(parse_amqp, broker.amqps))


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of these files. Raises TlsUnusable."""
    try:
        return client_context(files)
    except TlsFilesBroken as error:
        raise TlsUnusable(str(error)) from error


def relay_user(mesh: Mesh, site: str) -> str:
    """Return the user of a site's deliverer at the site's own broker, which marks its messages
    there.
    """
    return _shared_user(mesh, site) or Names(mesh.name).relay_user(site)


def packer_user(mesh: Mesh, site: str) -> str:
    """Return the user that consumes a site's egress."""
    return _shared_user(mesh, site) or Names(mesh.name).packer_user(site)


def vouched_user(mesh: Mesh, link: Link, site: str) -> str:
    """Return the user that the link's meeting broker vouches for when `site`, one of its ends,
    sends.
    """
    broker, names = mesh.sites[link.meeting].broker, Names(mesh.name)
    comes_as_itself = site != link.meeting and mesh.sites[site].link_password is not None
    if broker is None or comes_as_itself:
        return names.link_user(site)
    if site == link.meeting and broker.separate_users:
        return names.ends_user(site)
    return parse_amqp(broker.amqp).user


def _shared_user(mesh: Mesh, site: str) -> str:
    """Return the user of all purposes of a site's node at its own broker, or an empty text without
    one.
    """
    broker = mesh.sites[site].broker
    return "" if broker is None or broker.separate_users else parse_amqp(broker.amqp).user


def read_private_brokers(state: Path) -> dict[str, PrivateBroker]:
    """Return the private brokers by site name that `isthmus up` recorded; empty before. Raises
    BrokersFileBroken.
    """
    file = state / BROKERS_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        content = json.loads(text)
        if content["format"] != _FORMAT:
            raise BrokersFileBroken(file, f"format {content['format']!r} is not known")
        return {site: _private_broker(broker) for site, broker in content["sites"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokersFileBroken(file, f"damaged: {error!r}") from error


def write_private_brokers(state: Path, brokers: Mapping[str, PrivateBroker]) -> None:
    """Record where the private brokers listen; readers see the old file or the new file."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = {
        "format": _FORMAT,
        "sites": {site: _as_json(broker) for site, broker in sorted(brokers.items())},
    }
    durable_file.write(state / BROKERS_FILE, json.dumps(content, indent=1))


def _private_broker(written: Mapping[str, Any]) -> PrivateBroker:
    others = tuple(BrokerPorts(**ports) for ports in written.get("others", ()))
    return PrivateBroker(**{**written, "others": others})


def _as_json(broker: PrivateBroker) -> dict[str, Any]:
    """Return the broker as recorded. Without others the record is the one of versions before
    clusters.
    """
    written = asdict(broker)
    if not broker.others:
        del written["others"]
    return written


def read_private_servers(state: Path) -> PrivateServers | None:
    """Return the private servers that `isthmus up` recorded; None before. Raises
    BrokersFileBroken.
    """
    file = state / SERVERS_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.pop("format") != _FORMAT:
            raise BrokersFileBroken(file, "its format is not known")
        return PrivateServers(**content)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokersFileBroken(file, f"damaged: {error!r}") from error


def write_private_servers(state: Path, servers: PrivateServers) -> None:
    """Record where the private servers listen; readers see the old file or the new file."""
    content = {"format": _FORMAT, **asdict(servers)}
    durable_file.write(state / SERVERS_FILE, json.dumps(content, indent=1))
