"""The mesh that the keys of a valid file declare, and its revision. Pure.

The revision is a hash of that mesh. Comments, the order of keys, the folder, the files that sites
are spread over and the words for sites (tags, templates) do not change it, nor does a password in
clear. Defaults are left out, so that a key of a later version changes no revision of a file without
it, and nodes of two versions agree on one file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

from federation.brokers.broker_uri import (
    HostPort,
    parse_admin,
    parse_amqp,
    parse_management,
    parse_stream,
)
from federation.lanes import Lane, lane_number
from federation.mesh import (
    DATACENTER,
    LOCAL_ADMIN,
    OLDEST_BATCH_FORMAT,
    AckRule,
    AdminAccess,
    Begins,
    BrokerAddress,
    BrokerAuth,
    EnsemblePlace,
    Exchange,
    ExchangeMode,
    IdentityKind,
    IdentityRule,
    IdentityScope,
    JournalPlace,
    LargeRule,
    Link,
    LogLimit,
    Mesh,
    MulticastGroup,
    NodeGroup,
    OrderRule,
    PriorityRule,
    RetryRule,
    SigningRule,
    Site,
    TlsFiles,
    Unsigned,
    WhenLogIsFull,
)
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.multicast_keys import parse_group
from federation.mesh_file.keys.site_keys import (
    ANY_NODE,
    AdminKeys,
    SiteKeys,
    SiteWords,
    TlsKeys,
    keyspace_of,
    log_of_site,
)
from federation.mesh_file.topologies import declared_links, forwarding_rule
from federation.slots import SlotMap


def mesh_of_keys(keys: MeshKeys, folder: Path) -> Mesh:
    """Return the mesh of valid keys; `file:` passwords and TLS files are relative to `folder`."""
    words = SiteWords(keys.sites)
    sites = {name: _site(keys, name, site, folder) for name, site in keys.sites.items()}
    mesh = Mesh(
        name=keys.mesh,
        revision="",
        outage_window_s=keys.outage_window,
        rule=forwarding_rule(keys),
        sites=sites,
        exchanges={exchange.name: _exchange(exchange, words) for exchange in keys.exchanges},
        links=tuple(declared_links(keys, keys.sites).values()),
        cluster_ids={site.cluster_id: name for name, site in sites.items()},
        batch_format=keys.batch_format,
        signing=SigningRule(keys.signing),
        unsigned=Unsigned(keys.unsigned or Unsigned.REFUSE),
        repairers=_repairers(keys, words),
        revoked_keys=tuple(keys.revoked_keys or ()),
        lanes=tuple(
            Lane(name, lane_number(name), weight) for name, weight in (keys.lanes or {}).items()
        ),
        group=_group(keys, words, folder),
    )
    return replace(mesh, revision=revision_of(mesh, keys))


def _group(keys: MeshKeys, words: SiteWords, folder: Path) -> MulticastGroup | None:
    group = keys.topology.multicast if keys.topology is not None else None
    if group is None:
        return None
    address, port = parse_group(group.group)
    return MulticastGroup(
        address,
        port,
        tuple(_reference(where, folder) for where in group.secrets),
        group.rate,
        words.sites_of(group.replayers),
        group.mtu,
        group.ttl,
    )


def _repairers(keys: MeshKeys, words: SiteWords) -> tuple[str, ...] | None:
    if SigningRule(keys.signing) is SigningRule.NONE:
        return None
    return words.sites_of(keys.repairs_from or ())


def _site(whole: MeshKeys, name: str, keys: SiteKeys, folder: Path) -> Site:
    mesh = whole.mesh
    log = log_of_site(whole.log, keys.log)
    return Site(
        name,
        keys.cluster_id or name,
        broker=_broker(keys, keys.broker, folder) if keys.broker is not None else None,
        tags=tuple(keys.tags),
        wants={exchange: tuple(patterns) for exchange, patterns in keys.wants.items()},
        availability=keys.availability,
        admin=parse_admin(keys.admin.url).as_uri("http", "https") if keys.admin else None,
        admin_access=_admin_access(keys.admin, folder) if keys.admin else LOCAL_ADMIN,
        begins=Begins(keys.begins),
        link_password=_reference(keys.link_password, folder) if keys.link_password else None,
        log=LogLimit(log.max_bytes, WhenLogIsFull(log.on_full or WhenLogIsFull.BLOCK)),
        public_keys=tuple(keys.public_key or ()),
        private_key=_reference(keys.private_key or "", folder),
        max_rate=keys.max_rate,
        brokers=keys.brokers,
        replicas=keys.replicas,
        nodes=_nodes(mesh, name, keys, folder),
        slots=SlotMap(keys.slots, keys.place),
        content_above=keys.content.above if keys.content is not None else None,
        multicast=keys.multicast or "",
    )


def _nodes(mesh: str, site: str, keys: SiteKeys, folder: Path) -> NodeGroup | None:
    if keys.cluster is None:
        return None
    cassandra = keys.cluster.cassandra
    zookeeper = keys.cluster.zookeeper
    names = keys.nodes or ()
    keyspace = keyspace_of(mesh, site, cassandra)
    return NodeGroup(
        zookeeper=EnsemblePlace(
            tuple(zookeeper.hosts),
            zookeeper.user,
            _reference(zookeeper.password or "", folder),
            None if zookeeper.tls is None else _tls_files(zookeeper.tls, folder),
        )
        if zookeeper is not None
        else EnsemblePlace(()),
        cassandra=JournalPlace(
            tuple(cassandra.hosts),
            cassandra.datacenter,
            keyspace,
            cassandra.replication,
            cassandra.user,
            _reference(cassandra.password or "", folder),
            None if cassandra.tls is None else _tls_files(cassandra.tls, folder),
        )
        if cassandra is not None
        else JournalPlace((), DATACENTER, keyspace, replication=1),
        names=() if ANY_NODE in names else tuple(names),
        session_s=keys.cluster.session,
        copies=keys.cluster.copies,
    )


def _broker(keys: SiteKeys, amqps: Sequence[str], folder: Path) -> BrokerAddress:
    uris = [parse_amqp(amqp) for amqp in amqps]
    if keys.stream is not None:
        streams = [parse_stream(stream) for stream in keys.stream]
    else:
        streams = [HostPort(uri.host, 5551 if uri.tls else 5552, uri.tls) for uri in uris]
    # Nodes on one host with different AMQP ports have one stream port by default.
    stream, *more_streams = dict.fromkeys(
        listener.as_uri("rabbitmq-stream", "rabbitmq-stream+tls") for listener in streams
    )
    managements = [parse_management(uri).as_uri("http", "https") for uri in keys.management or ()]
    in_clear = next((uri.password for uri in uris if uri.password), "")
    tls = keys.tls if keys.tls is not None else TlsKeys.model_validate({})
    return BrokerAddress(
        amqp=uris[0].without_password(),
        more_amqp=tuple(uri.without_password() for uri in uris[1:]),
        stream=stream,
        more_streams=tuple(more_streams),
        password=_reference(keys.password or in_clear, folder),
        management=managements[0] if managements else None,
        more_managements=tuple(managements[1:]),
        tls=_tls_files(tls, folder),
        auth=BrokerAuth(keys.auth),
        separate_users=keys.users == "separate",
    )


def _tls_files(keys: TlsKeys, folder: Path) -> TlsFiles:
    return TlsFiles(
        ca=_absolute(keys.ca, folder),
        certificate=_absolute(keys.certificate, folder),
        key=_absolute(keys.private_key, folder),
    )


def _admin_access(keys: AdminKeys, folder: Path) -> AdminAccess:
    return AdminAccess(
        _reference(keys.token or "", folder),
        TlsFiles(
            ca=_absolute(keys.ca, folder),
            certificate=_absolute(keys.certificate, folder),
            key=_absolute(keys.private_key, folder),
        ),
    )


def _reference(written: str, folder: Path) -> str:
    """Return a password's reference with an absolute path: `file:` is relative to the mesh file,
    not to the command's folder.
    """
    if not written.startswith("file:"):
        return written
    return f"file:{_absolute(written.removeprefix('file:'), folder)}"


def _absolute(path: str | None, folder: Path) -> str:
    return str((folder / path).absolute()) if path else ""


def _exchange(keys: ExchangeKeys, words: SiteWords) -> Exchange:
    all_of_it: tuple[str, ...] = ("#",) if keys.type == "topic" else ()
    first, most = keys.retry.backoff
    header = keys.identity.removeprefix("header:") if keys.identity.startswith("header:") else ""
    return Exchange(
        name=keys.name,
        type=keys.type,
        keys=tuple(keys.keys) if keys.keys is not None else all_of_it,
        origins=words.sites_of(keys.origins) if keys.origins is not None else None,
        destinations=words.sites_of(keys.destinations) if keys.destinations is not None else None,
        mode=ExchangeMode(keys.mode),
        identity=IdentityRule(
            IdentityKind.HEADER if header else IdentityKind(keys.identity), header
        ),
        scope=IdentityScope(keys.scope),
        order=OrderRule(keys.order),
        retry=RetryRule(keys.retry.max_attempts, first, most),
        never_via=words.sites_of(keys.never_via),
        lane=lane_number(keys.lane),
        partitions=keys.partitions,
        acks=AckRule(keys.acks),
        priorities=PriorityRule(keys.priorities),
        deadline_s=keys.deadline,
        large=LargeRule(keys.large),
    )


_REVISION_FORM = "isthmus mesh 2"
"""Form of the hashed text: changes if the same mesh would be written differently, or a default
changes.
"""


def revision_of(mesh: Mesh, keys: MeshKeys) -> str:
    """Return twelve hexadecimal digits. `keys` have paths and passwords as they were written."""
    hashed = {
        "name": mesh.name,
        "outage_window_s": mesh.outage_window_s,
        "rule": mesh.rule,
        "sites": {name: _hashed_site(site, keys) for name, site in mesh.sites.items()},
        "exchanges": {
            name: _hashed_exchange(exchange) for name, exchange in mesh.exchanges.items()
        },
        "links": sorted((_hashed_link(link) for link in mesh.links), key=_pair),
    }
    if mesh.batch_format != OLDEST_BATCH_FORMAT:
        hashed["batch_format"] = mesh.batch_format
    if mesh.group is not None and keys.topology is not None:
        written = keys.topology.multicast
        hashed["group"] = asdict(mesh.group) | {"keys": written.secrets if written else []}
    if mesh.lanes:
        hashed["lanes"] = [asdict(lane) for lane in mesh.lanes]
    if mesh.signing is not SigningRule.NONE:
        hashed["signing"] = {
            "rule": mesh.signing,
            "unsigned": mesh.unsigned,
            "repairers": sorted(mesh.repairers or ()),
            "revoked_keys": sorted(mesh.revoked_keys),
        }
    canonical = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{_REVISION_FORM}\n{canonical}".encode()).hexdigest()[:12]


def _hashed_link(link: Link) -> dict[str, Any]:
    hashed = _changed_fields(link)
    if link.max_rate is not None:
        hashed["max_rate"] = asdict(link.max_rate)
    return hashed


def _pair(link: dict[str, Any]) -> tuple[str, str]:
    return link["sender"], link["receiver"]


def _changed_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a frozen value that differ from their defaults."""
    hashed: dict[str, Any] = {}
    for field in fields(value):
        own = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if own != default:
            hashed[field.name] = own
    return hashed


def _hashed_site(site: Site, keys: MeshKeys) -> dict[str, Any]:
    hashed = _changed_fields(site)
    hashed.pop("tags", None)
    # Who runs a site, and where it keeps what, is nobody else's business, and may change without a
    # new revision.
    hashed.pop("nodes", None)
    hashed.pop("content_above", None)
    if "wants" in hashed:
        hashed["wants"] = {name: sorted(patterns) for name, patterns in site.wants.items()}
    if "slots" in hashed:
        hashed["slots"] = _changed_fields(site.slots)
    if "log" in hashed:
        hashed["log"] = _changed_fields(site.log)
    if site.max_rate is not None:
        hashed["max_rate"] = asdict(site.max_rate)
    written = keys.sites[site.name]
    if site.private_key:
        hashed["private_key"] = written.private_key
    if "public_keys" in hashed:
        hashed["public_keys"] = sorted(site.public_keys)
    if "admin_access" in hashed and written.admin is not None:
        hashed["admin_access"] = written.admin.model_dump(exclude_none=True, exclude={"url"})
    if site.link_password is not None:
        hashed["link_password"] = written.link_password
    if site.broker is not None:
        password = written.password or ""
        is_reference = password.startswith(("env:", "file:"))
        hashed["broker"] = {
            **_changed_fields(site.broker),
            "password": password if is_reference else "",
            "tls": written.tls.model_dump(exclude_none=True) if written.tls is not None else {},
        }
    return hashed


def _hashed_exchange(exchange: Exchange) -> dict[str, Any]:
    hashed = _changed_fields(exchange)
    # Sets, whose written order has no meaning; a tag's sites have the order of the file.
    for name in ("keys", "origins", "destinations", "never_via"):
        if hashed.get(name) is not None:
            hashed[name] = sorted(hashed[name])
    for name in ("identity", "retry"):
        if name in hashed:
            hashed[name] = _changed_fields(hashed[name])
    return hashed
