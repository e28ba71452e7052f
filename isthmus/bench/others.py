"""Who else would get a measurement's messages, or wait behind them.

The mesh brings them to every site that takes the exchange under that key, listened at or not, and
at the sites where they are published the broker gives them to all that is bound there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from federation.brokers.addresses import AddressBook
from federation.brokers.management import ManagementApi, ManagementError
from federation.mesh import Mesh
from federation.names import Names
from isthmus.bench.asked import Asked
from isthmus.bench.pairs import takers
from isthmus.bench.queues import EXPIRES_MS, QUEUE_PREFIX

SITES_AT_ONCE = 8
_SAID = 5
_BENCH = f": another bench's; of one that was killed, it goes by itself in {EXPIRES_MS // 1000} s"


@dataclass(frozen=True, slots=True)
class Other:
    """Something at a site that is bound to the exchange there, or gets what nobody takes."""

    site: str
    exchange: str
    said: str
    """What it is: `queue billing by order.#`."""


@dataclass(frozen=True, slots=True)
class Untold:
    """A site whose broker does not say what is bound there."""

    site: str
    why: str


def touched(mesh: Mesh, asked: Asked) -> dict[str, set[str]]:
    """The exchanges that the messages get to, by site."""
    exchange, key = asked.exchange, asked.key
    found: dict[str, set[str]] = {}
    for origin in asked.origins:
        found.setdefault(origin, set()).add(exchange.name)
        for site in takers(mesh, exchange, origin, key):
            found.setdefault(site, set()).add(exchange.delivers_to)
    return found


async def others_at(
    book: AddressBook, exchanges: Mapping[str, Iterable[str]]
) -> tuple[list[Other], list[Untold]]:
    """Asked of the management APIs. `exchanges` by site. Raises AddressError, PasswordMissing."""
    names = Names(book.mesh.name)
    turn = asyncio.Semaphore(SITES_AT_ONCE)

    async def one(site: str) -> list[Other] | Untold:
        address = book.monitoring(site)
        if address is None:
            return Untold(site, "the mesh file has no `management:` for it")
        found: list[Other] = []
        try:
            async with turn, ManagementApi(address) as api:
                for exchange in sorted(exchanges[site]):
                    where = "exchanges", api.vhost, exchange
                    declared = await api.get(*where) or {}
                    bindings = await api.get(*where, "bindings", "source") or []
                    found += [
                        Other(site, exchange, said)
                        for said in others_among(declared, bindings, names.egress(exchange))
                    ]
        except ManagementError as error:
            return Untold(site, str(error))
        return found

    told = await asyncio.gather(*map(one, exchanges))
    return (
        [other for of_site in told if isinstance(of_site, list) for other in of_site],
        [of_site for of_site in told if isinstance(of_site, Untold)],
    )


def others_among(
    declared: Mapping[str, Any], bindings: Sequence[Mapping[str, Any]], egress: str
) -> Iterator[str]:
    """What an exchange leads to, but for the queue of the mesh itself."""
    keys: dict[tuple[str, str], list[str]] = {}
    for binding in bindings:
        kind, name = binding["destination_type"], binding["destination"]
        if (kind, name) != ("queue", egress):
            keys.setdefault((kind, name), []).append(binding["routing_key"])
    for (kind, name), bound in keys.items():
        by = ", ".join(repr(key) for key in bound[:_SAID])
        yield f"{kind} {name}, bound by {by}{_BENCH if name.startswith(QUEUE_PREFIX) else ''}"
    if alternate := (declared.get("arguments") or {}).get("alternate-exchange"):
        yield f"exchange {alternate}, which gets what no queue takes"


class OthersListen(Exception):
    """Somebody would be disturbed, or it cannot be told; the text has a line for each."""

    def __init__(self, others: Sequence[Other], untold: Sequence[Untold]) -> None:
        lines = [f"{one.site}: {one.exchange} has {one.said}" for one in others]
        lines += [f"{one.site}: cannot tell who listens there: {one.why}" for one in untold]
        super().__init__("\n".join(lines))
        self.others, self.untold = others, untold


async def refuse_if_others_listen(book: AddressBook, asked: Asked) -> None:
    """Raises OthersListen, AddressError, PasswordMissing."""
    others, untold = await others_at(book, touched(book.mesh, asked))
    if others or untold:
        raise OthersListen(others, untold)
