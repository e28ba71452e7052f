"""The keys of a valid mesh file -> the Mesh that they come to, with its revision. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

from federation.broker_uri import HostPort, parse_amqp, parse_management, parse_stream
from federation.mesh import (
    BrokerAddress,
    Exchange,
    ExchangeMode,
    IdentityKind,
    IdentityRule,
    IdentityScope,
    Mesh,
    OrderRule,
    RetryRule,
    Site,
)
from federation.mesh_document import ExchangeKeys, MeshKeys, SiteKeys
from federation.topologies import declared_links, forwarding_rule


def mesh_of_keys(keys: MeshKeys, folder: Path) -> Mesh:
    """What valid keys come to; `file:` passwords are relative to `folder`."""
    sites = {name: _site(name, site, folder) for name, site in keys.sites.items()}
    mesh = Mesh(
        name=keys.mesh,
        revision="",
        outage_window_s=keys.outage_window,
        rule=forwarding_rule(keys),
        sites=sites,
        exchanges={exchange.name: _exchange(exchange) for exchange in keys.exchanges},
        links=tuple(declared_links(keys, keys.sites).values()),
        cluster_ids={site.cluster_id: name for name, site in sites.items()},
    )
    return replace(mesh, revision=_revision(mesh, keys))


def _site(name: str, keys: SiteKeys, folder: Path) -> Site:
    cluster_id = keys.cluster_id or name
    if keys.broker is None:
        return Site(name, cluster_id)
    uri = parse_amqp(keys.broker)
    if keys.stream is not None:
        stream = parse_stream(keys.stream)
    else:
        stream = HostPort(uri.host, 5551 if uri.tls else 5552, uri.tls)
    management = parse_management(keys.management) if keys.management else None
    password = keys.password or uri.password or ""
    if password.startswith("file:"):
        # Relative to the mesh file, wherever the command is run.
        password = f"file:{(folder / password.removeprefix('file:')).absolute()}"
    return Site(
        name,
        cluster_id,
        BrokerAddress(
            amqp=uri.without_password(),
            stream=stream.as_uri("rabbitmq-stream", "rabbitmq-stream+tls"),
            password=password,
            management=management.as_uri("http", "https") if management else None,
        ),
    )


def _exchange(keys: ExchangeKeys) -> Exchange:
    all_of_it: tuple[str, ...] = ("#",) if keys.type == "topic" else ()
    first, most = keys.retry.backoff
    header = keys.identity.removeprefix("header:") if keys.identity.startswith("header:") else ""
    return Exchange(
        name=keys.name,
        type=keys.type,
        keys=tuple(keys.keys) if keys.keys is not None else all_of_it,
        origins=tuple(keys.origins) if keys.origins is not None else None,
        destinations=tuple(keys.destinations) if keys.destinations is not None else None,
        mode=ExchangeMode(keys.mode),
        identity=IdentityRule(
            IdentityKind.HEADER if header else IdentityKind(keys.identity), header
        ),
        scope=IdentityScope(keys.scope),
        order=OrderRule(keys.order),
        retry=RetryRule(keys.retry.max_attempts, first, most),
    )


def _revision(mesh: Mesh, keys: MeshKeys) -> str:
    """A hash of what the file comes to: comments, the order of keys and the folder leave no trace,
    and neither does a password in clear.
    """
    said = asdict(mesh)
    del said["revision"], said["cluster_ids"]
    said["links"] = sorted(said["links"], key=lambda link: (link["sender"], link["receiver"]))
    for name, site in said["sites"].items():
        if site["broker"] is not None:
            written = keys.sites[name].password or ""
            is_reference = written.startswith(("env:", "file:"))
            site["broker"]["password"] = written if is_reference else ""
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"isthmus mesh 1\n{canonical}".encode()).hexdigest()[:12]
