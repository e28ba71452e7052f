"""Search for other consumers that a measurement would disturb.

The mesh carries test messages to every site that takes the exchange under the key, and at the
origins the broker hands them to every binding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federation.brokers.addresses import AddressBook
from federation.brokers.management import ManagementApi, ManagementError
from federation.mesh import Mesh
from federation.names import Names
from isthmus.bench.queues import EXPIRES_MS, QUEUE_PREFIX
from isthmus.bench.request import BenchRequest, takers

SITES_AT_ONCE = 8
_MOST_KEYS = 5
_BENCH = f": another bench's; of one that was killed, it goes by itself in {EXPIRES_MS // 1000} s"


@dataclass(frozen=True, slots=True)
class OtherBinding:
    """Foreign binding of a measured exchange, or its alternate exchange."""

    site: str
    exchange: str
    description: str
    """Description such as `queue billing by order.#`."""


@dataclass(frozen=True, slots=True)
class UnknownSite:
    """Site whose bindings cannot be listed."""

    site: str
    why: str


def touched(mesh: Mesh, request: BenchRequest) -> dict[str, set[str]]:
    """Return the exchanges that test messages reach, by site."""
    exchange, key = request.exchange, request.key
    found: dict[str, set[str]] = {}
    for origin in request.origins:
        found.setdefault(origin, set()).add(exchange.name)
        for site in takers(mesh, exchange, origin, key):
            found.setdefault(site, set()).add(exchange.delivers_to)
    return found


async def other_bindings(
    book: AddressBook, exchanges: Mapping[str, Iterable[str]]
) -> tuple[list[OtherBinding], list[UnknownSite]]:
    """Ask the management APIs for foreign bindings of the exchanges of each site. Raises
    AddressError, PasswordMissing.
    """
    names = Names(book.mesh.name)
    turn = asyncio.Semaphore(SITES_AT_ONCE)

    async def one(site: str) -> list[OtherBinding] | UnknownSite:
        address = book.monitoring(site)
        if address is None:
            return UnknownSite(site, "the mesh file has no `management:` for it")
        found: list[OtherBinding] = []
        try:
            async with turn, ManagementApi(address) as api:
                for exchange in sorted(exchanges[site]):
                    where = "exchanges", api.vhost, exchange
                    declared = await api.get(*where) or {}
                    bindings = await api.get(*where, "bindings", "source") or []
                    found += [
                        OtherBinding(site, exchange, description)
                        for description in bindings_besides(
                            declared,
                            bindings,
                            (names.egress(exchange), names.partitions(exchange)),
                        )
                    ]
        except ManagementError as error:
            return UnknownSite(site, str(error))
        return found

    answers = await asyncio.gather(*map(one, exchanges))
    return (
        [other for of_site in answers if isinstance(of_site, list) for other in of_site],
        [of_site for of_site in answers if isinstance(of_site, UnknownSite)],
    )


def bindings_besides(
    declared: Mapping[str, Any], bindings: Sequence[Mapping[str, Any]], own: Collection[str]
) -> Iterator[str]:
    """Describe the bindings of an exchange other than those to the mesh's `own` objects."""
    keys: dict[tuple[str, str], list[str]] = {}
    for binding in bindings:
        kind, name = binding["destination_type"], binding["destination"]
        if name not in own:
            keys.setdefault((kind, name), []).append(binding["routing_key"])
    for (kind, name), bound in keys.items():
        by = ", ".join(repr(key) for key in bound[:_MOST_KEYS])
        yield f"{kind} {name}, bound by {by}{_BENCH if name.startswith(QUEUE_PREFIX) else ''}"
    if alternate := (declared.get("arguments") or {}).get("alternate-exchange"):
        yield f"exchange {alternate}, which gets what no queue takes"


class OthersListen(Exception):
    """Other consumers exist or may exist; the text has a line for each."""

    def __init__(self, others: Sequence[OtherBinding], unknown: Sequence[UnknownSite]) -> None:
        lines = [f"{one.site}: {one.exchange} has {one.description}" for one in others]
        lines += [f"{one.site}: cannot tell who listens there: {one.why}" for one in unknown]
        super().__init__("\n".join(lines))
        self.others, self.unknown = others, unknown


async def refuse_if_others_listen(book: AddressBook, request: BenchRequest) -> None:
    """Raise OthersListen, AddressError or PasswordMissing."""
    others, unknown = await other_bindings(book, touched(book.mesh, request))
    if others or unknown:
        raise OthersListen(others, unknown)
