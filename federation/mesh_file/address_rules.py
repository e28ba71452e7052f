"""Rules for lists of addresses: what those of one cluster have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from federation.brokers.broker_uri import (
    AmqpUri,
    HostPort,
    parse_amqp,
    parse_management,
    parse_stream,
)
from federation.mesh_file.site_keys import SiteKeys
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location

_Address = TypeVar("_Address", AmqpUri, HostPort)


def address_violations(name: str, site: SiteKeys) -> Iterator[Violation]:
    """Each address of a list that cannot stand beside the first one."""
    at: Location = ("sites", name)
    uris = [parse_amqp(one) for one in site.broker or ()]
    yield from _alike((*at, "broker"), uris, ("amqps://", "amqp://"))
    yield from _one_login((*at, "broker"), uris)
    streams = [parse_stream(one) for one in site.stream or ()]
    yield from _alike((*at, "stream"), streams, ("rabbitmq-stream+tls://", "rabbitmq-stream://"))
    managements = [parse_management(one) for one in site.management or ()]
    yield from _alike((*at, "management"), managements, ("https://", "http://"))


def _alike(
    at: Location, addresses: Sequence[_Address], schemes: tuple[str, str]
) -> Iterator[Violation]:
    """`schemes`: with TLS, and in clear."""
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


def _one_login(at: Location, uris: Sequence[AmqpUri]) -> Iterator[Violation]:
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
    written = [one for one in passwords if one is not None]
    yield from _same(
        at,
        [one if one is not None else written[0] for one in passwords] if written else [],
        lambda _, __: "this address has another password than the first one that has any",
        "take the passwords out and write password: env:NAME or file:PATH",
    )


def _same(
    at: Location, values: Sequence[str], wrong: Callable[[str, str], str], mend: str
) -> Iterator[Violation]:
    for number, value in enumerate(values):
        if value != values[0]:
            yield Violation((*at, number), wrong(value, values[0]), mend)
