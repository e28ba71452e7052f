"""What sites must satisfy: cluster IDs, brokers, passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.brokers.broker_uri import parse_amqp, parse_management, parse_stream
from federation.mesh_file.address_rules import address_violations
from federation.mesh_file.cluster_rules import cluster_violations
from federation.mesh_file.document import MeshKeys
from federation.mesh_file.problems import Severity
from federation.mesh_file.site_keys import SiteKeys
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location

_CLUSTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,62}")


def site_violations(keys: MeshKeys) -> Iterator[Violation]:
    """All that is wrong with the sites themselves."""
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
    # Those that follow from a site's name go first: the complaint is about what was written.
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
    for key, other in (("certificate", "key"), ("key", "certificate")):
        has = {"certificate": site.tls.certificate, "key": site.tls.private_key}
        if has[key] is not None and has[other] is None:
            yield Violation(
                (*at, key),
                f"a `{key}` without its `{other}`",
                f"add {other}: PATH of the PEM file",
                True,
            )


def _external(name: str, site: SiteKeys) -> Iterator[Violation]:
    """What a login by certificate needs."""
    if site.broker is None or site.auth != "external":
        return
    at: Location = ("sites", name)
    uris = [parse_amqp(one) for one in site.broker]
    if not any(uri.tls for uri in uris):
        yield Violation(
            (*at, "auth"),
            "`auth: external` for an address that begins with amqp://, which is in clear",
            "write amqps:// in `broker`: the login is the certificate of the TLS connection",
        )
    elif site.stream is not None and not any(parse_stream(one).tls for one in site.stream):
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
    """Key, number within its list, host."""
    for number, uri in enumerate(map(parse_amqp, site.broker or ())):
        yield "broker", number, uri.host
    for number, listener in enumerate(map(parse_stream, site.stream or ())):
        yield "stream", number, listener.host
    for number, listener in enumerate(map(parse_management, site.management or ())):
        yield "management", number, listener.host
