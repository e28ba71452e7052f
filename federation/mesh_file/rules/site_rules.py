"""Rules for sites: cluster IDs, brokers, addresses, clusters, passwords, admin ports. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from federation.brokers.broker_uri import (
    AmqpUri,
    HostPort,
    is_loopback,
    parse_admin,
    parse_amqp,
    parse_management,
    parse_stream,
)
from federation.mesh import EACH_NODE
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import ANY_NODE, AdminKeys, SiteKeys
from federation.mesh_file.problem import Severity, Violation
from federation.mesh_file.rules.certificate_pair import pair_violations
from federation.mesh_file.tree import Location

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")


def site_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check the sites, except for signing."""
    yield from _cluster_ids(keys)
    vhosts: dict[tuple[str, int, str], str] = {}
    for name, site in keys.sites.items():
        yield from _broker(name, site)
        yield from address_violations(name, site)
        yield from cluster_violations(name, site)
        yield from _tls(name, site)
        yield from _external(name, site)
        for number, uri in enumerate(map(parse_amqp, site.broker or ())):
            same = vhosts.setdefault((uri.host, uri.port, uri.vhost), name)
            if same != name:
                yield Violation(
                    ("sites", name, "broker", number),
                    f"site `{same}` has this broker and virtual host already",
                    "a site is a virtual host of its own: give it another",
                )
                break


def _cluster_ids(keys: MeshKeys) -> Iterator[Violation]:
    owners: dict[str, str] = {}
    # IDs that follow from a site's name go first: the written ID is to blame.
    for name, site in sorted(keys.sites.items(), key=lambda item: item[1].cluster_id is not None):
        written = site.cluster_id is not None
        cluster_id = site.cluster_id if site.cluster_id is not None else name
        at: Location = ("sites", name, "cluster_id") if written else ("sites", name)
        if not cluster_id:
            yield Violation(at, "the cluster ID is empty", "leave it out, or write one")
        elif written and not _CLUSTER_ID.fullmatch(cluster_id):
            yield Violation(
                at,
                f"`{cluster_id}` cannot be a cluster ID",
                "write up to 63 letters, digits, . _ : -",
            )
        elif (owner := owners.setdefault(cluster_id, name)) != name:
            yield Violation(
                at,
                f"the cluster ID `{cluster_id}` is that of site `{owner}` already",
                "give each site its own: loops are broken by it",
                on_key=not written,
            )


def _broker(name: str, site: SiteKeys) -> Iterator[Violation]:
    at: Location = ("sites", name)
    if site.broker is None:
        for key in ("stream", "password", "management", "auth"):
            if key in site.model_fields_set and getattr(site, key) is not None:
                yield Violation(
                    (*at, key),
                    f"`{key}` without a `broker` it belongs to",
                    "add broker: amqps://USER@HOST/VHOST, or take it out (a private broker)",
                    True,
                    depends_on=("broker",),
                )
        return
    for key, number, host in _hosts(site):
        if not any(letter.isalnum() for letter in host):
            yield Violation(
                (*at, key, number),
                f"`{host}` is no host that could be found",
                "write the broker's name or address",
                severity=Severity.WARNING,
            )
    with_password = [
        number
        for number, uri in enumerate(map(parse_amqp, site.broker))
        if uri.password is not None
    ]
    in_uri = bool(with_password)
    for number in with_password:
        yield Violation(
            (*at, "broker", number),
            "there is a password in clear in this address",
            "take it out and write password: env:NAME or file:PATH",
            severity=Severity.WARNING,
        )
    if site.password is None:
        if not in_uri and site.auth == "password":
            yield Violation(
                (*at, "broker"),
                f"no password for the broker of `{name}`",
                "add password: env:NAME or file:PATH",
                depends_on=("password", "auth"),
            )
    elif in_uri:
        yield Violation((*at, "password"), "a second password", "take the one in `broker` out")
    elif site.password in ("", "env:", "file:"):
        yield Violation((*at, "password"), "this names no password", "write env:NAME or file:PATH")
    elif re.match(r"(env|file):\s|env:.*\s", site.password):
        yield Violation(
            (*at, "password"),
            "the blank would be part of the name",
            f"write {''.join(site.password.split())}",
        )
    elif not site.password.startswith(("env:", "file:")):
        variable = re.fullmatch(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", site.password)
        yield Violation(
            (*at, "password"),
            "this password is in clear",
            f"did you mean env:{variable[1]}?" if variable else "write env:NAME or file:PATH",
            severity=Severity.WARNING,
        )


def _tls(name: str, site: SiteKeys) -> Iterator[Violation]:
    if site.tls is None:
        return
    at: Location = ("sites", name, "tls")
    if site.broker is None:
        yield Violation(
            at,
            "`tls` without a `broker` it belongs to",
            "add broker: amqps://USER@HOST/VHOST, or take it out (a private broker)",
            True,
            depends_on=("broker",),
        )
    elif not any(uri.tls for uri in map(parse_amqp, site.broker)):
        yield Violation(
            at,
            "`tls` for an address that begins with amqp://, which is in clear",
            "write amqps:// in `broker`, or take `tls` out",
            True,
        )
    yield from pair_violations(at, site.tls)


def _external(name: str, site: SiteKeys) -> Iterator[Violation]:
    """Check the needs of a login by certificate."""
    if site.broker is None or site.auth != "external":
        return
    at: Location = ("sites", name)
    uris = [parse_amqp(uri) for uri in site.broker]
    if not any(uri.tls for uri in uris):
        yield Violation(
            (*at, "auth"),
            "`auth: external` for an address that begins with amqp://, which is in clear",
            "write amqps:// in `broker`: the login is the certificate of the TLS connection",
        )
    elif site.stream is not None and not any(parse_stream(uri).tls for uri in site.stream):
        yield Violation(
            (*at, "auth"),
            "`auth: external` with a `stream` that is in clear",
            "write rabbitmq-stream+tls:// in `stream`, for the log logs in by certificate too",
        )
    if site.tls is None or site.tls.certificate is None:
        yield Violation(
            (*at, "auth"),
            "`auth: external` without a certificate to log in with",
            "add tls: with certificate: and key:, PATHs of PEM files",
            depends_on=("tls",),
        )
    has_password = site.password is not None or any(uri.password is not None for uri in uris)
    if site.management is not None and not has_password:
        yield Violation(
            (*at, "management"),
            "`management` without a password: RabbitMQ's management API takes no certificate "
            "for one",
            "add password: env:NAME or file:PATH, or take `management` out: then `isthmus apply` "
            "prints what to run",
            depends_on=("password",),
        )


def _hosts(site: SiteKeys) -> Iterator[tuple[str, int, str]]:
    """Yield key, number within its list, and host of each address."""
    for number, uri in enumerate(map(parse_amqp, site.broker or ())):
        yield "broker", number, uri.host
    for number, listener in enumerate(map(parse_stream, site.stream or ())):
        yield "stream", number, listener.host
    for number, listener in enumerate(map(parse_management, site.management or ())):
        yield "management", number, listener.host


_Address = TypeVar("_Address", AmqpUri, HostPort)


def address_violations(name: str, site: SiteKeys) -> Iterator[Violation]:
    """Refuse each address of a list that cannot stand beside the first."""
    at: Location = ("sites", name)
    uris = [parse_amqp(uri) for uri in site.broker or ()]
    yield from _alike((*at, "broker"), uris, ("amqps://", "amqp://"))
    yield from _common_login((*at, "broker"), uris)
    streams = [parse_stream(uri) for uri in site.stream or ()]
    yield from _alike((*at, "stream"), streams, ("rabbitmq-stream+tls://", "rabbitmq-stream://"))
    managements = [parse_management(uri) for uri in site.management or ()]
    yield from _alike((*at, "management"), managements, ("https://", "http://"))


def _alike(
    at: Location, addresses: Sequence[_Address], schemes: tuple[str, str]
) -> Iterator[Violation]:
    """Check that addresses differ and agree in TLS. `schemes`: with TLS, and in clear."""
    seen: set[tuple[str, int]] = set()
    for number, address in enumerate(addresses):
        if (where := (address.host.lower(), address.port)) in seen:
            yield Violation((*at, number), "this address stands here twice", "keep one of them")
        elif address.tls != addresses[0].tls:
            tls, clear = schemes
            mine, first = (tls, clear) if address.tls else (clear, tls)
            yield Violation(
                (*at, number),
                f"this address begins with {mine}, the first one with {first}",
                f"write {tls} in each, if the cluster's nodes speak TLS, or {clear} in each",
            )
        seen.add(where)


def _common_login(at: Location, uris: Sequence[AmqpUri]) -> Iterator[Violation]:
    yield from _same(
        at,
        [uri.vhost for uri in uris],
        lambda own, first: f"this address has the virtual host `{own}`, the first one `{first}`",
        "a site is one virtual host of one cluster: write the same in each",
    )
    yield from _same(
        at,
        [uri.user for uri in uris],
        lambda own, first: f"this address has the user `{own}`, the first one `{first}`",
        "a cluster's nodes have the same users: write the same in each",
    )
    passwords = [uri.password for uri in uris]
    written = [password for password in passwords if password is not None]
    yield from _same(
        at,
        [password if password is not None else written[0] for password in passwords]
        if written
        else [],
        lambda _, __: "this address has another password than the first one that has any",
        "take the passwords out and write password: env:NAME or file:PATH",
    )


def _same(
    at: Location, values: Sequence[str], wrong: Callable[[str, str], str], mend: str
) -> Iterator[Violation]:
    for number, value in enumerate(values):
        if value != values[0]:
            yield Violation((*at, number), wrong(value, values[0]), mend)


def cluster_violations(name: str, site: SiteKeys) -> Iterator[Violation]:
    """Find mistakes in `brokers` and `replicas` of a site."""
    at = ("sites", name)
    if site.broker is not None and "brokers" in site.model_fields_set:
        yield Violation(
            (*at, "brokers"),
            "`brokers` beside a `broker`: `isthmus up` runs no cluster for this site",
            "take it out; or take `broker` out, for a private cluster",
            True,
        )
        return
    if site.brokers % 2 == 0:
        yield _even((*at, "brokers"), f"a cluster of {site.brokers} nodes outlives", site.brokers)
    if site.replicas is None:
        return
    if site.broker is None and site.replicas > site.brokers:
        yield Violation(
            (*at, "replicas"),
            f"{site.replicas} replicas need as many broker nodes, and there are {site.brokers}",
            f"write brokers: {site.replicas}, or no more than {site.brokers} replicas",
            depends_on=("brokers",),
        )
    elif site.replicas % 2 == 0:
        yield _even((*at, "replicas"), f"{site.replicas} replicas outlive", site.replicas)


def _even(at: Location, outlives: str, count: int) -> Violation:
    """Warn of an even number, which tolerates no more losses than the number below. `outlives`:
    subject and verb of the text.
    """
    return Violation(
        at,
        f"{outlives} the loss of no more nodes than {count - 1} would, as more than half have to "
        "be there",
        f"write {count - 1} or {count + 1}",
        severity=Severity.WARNING,
    )


_SAFE = "admin: {url: https://HOST:PORT, token: file:PATH, certificate: PATH, key: PATH}"


def admin_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Allow loopback in clear, or TLS and a token: nothing between."""
    for name, site in keys.sites.items():
        if site.admin is not None:
            at: Location = ("sites", name, "admin")
            yield from _admin(at, site.admin)
            has_names = site.cluster is not None and site.nodes not in (None, [ANY_NODE])
            if EACH_NODE in site.admin.url and not has_names:
                yield Violation(
                    at,
                    f"`{EACH_NODE}` stands for the names of the site's nodes, which the file lacks",
                    "name them in `nodes`, or write the address of the only one",
                )
            for shown, value in _access(site.admin):
                if EACH_NODE in value:
                    yield Violation(
                        (*at, shown),
                        f"`{EACH_NODE}` stands for a name in `url` alone",
                        "write one path, which may lead to another file on each machine",
                    )


def _access(admin: AdminKeys) -> Iterator[tuple[str, str]]:
    """Yield the keys that are written of an access, by their names in the file."""
    for name, value in (
        ("token", admin.token),
        ("certificate", admin.certificate),
        ("key", admin.private_key),
        ("ca", admin.ca),
    ):
        if value is not None:
            yield name, value


def _admin(at: Location, admin: AdminKeys) -> Iterator[Violation]:
    where = parse_admin(admin.url)
    if not where.tls:
        if not is_loopback(where.host):
            yield Violation(
                at,
                "http at an address that is not loopback tells everybody there all of the status",
                f"write {_SAFE}, or http://127.0.0.1:PORT",
            )
            return
        for shown, _ in _access(admin):
            yield Violation(
                (*at, shown),
                f"a `{shown}` for an address that begins with http://, which is in clear",
                "write https:// in `url`, or take it out",
                True,
            )
        return
    if admin.token is None:
        yield Violation(
            at,
            "https without a token lets everybody there know all of the status",
            f"write {_SAFE}",
        )
    elif not admin.token.startswith(("env:", "file:")) or admin.token in ("env:", "file:"):
        yield Violation(
            (*at, "token"),
            "a token does not stand in the mesh file, which all sites have",
            "write env:NAME or file:PATH",
        )
    yield from pair_violations(at, admin)
