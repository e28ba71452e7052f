"""Rules for the partitions of exchanges. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.problem import Violation
from federation.mesh_file.tree import Location
from federation.names import Names, NameTooLong
from federation.partitions import PARTITIONED_LANES, partition_name


def partition_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check `partitions` of all exchanges, and what of the file does not go with them."""
    names = {exchange.name for exchange in keys.exchanges}
    for n, exchange in enumerate(keys.exchanges):
        if exchange.partitions > 1:
            at: Location = ("exchanges", n, "partitions")
            yield from _keyless(exchange, at)
            yield from _lane(exchange, at)
            yield from _taken(keys, exchange, names, at)
            yield from _placed(keys, exchange)


def _keyless(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    if exchange.type in ("fanout", "headers"):
        yield Violation(
            at,
            f"partitions follow from routing keys, and messages of a {exchange.type} exchange are "
            "told apart by none",
            "make it type: topic or direct, or take this out",
            depends_on=("type",),
        )


def _lane(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    if exchange.lane not in PARTITIONED_LANES:
        yield Violation(
            at,
            f"`{exchange.name}` is in lane `{exchange.lane}`, whose batches have no room for the "
            "number of a partition",
            f"use a lane named {', '.join(PARTITIONED_LANES[:-1])} or {PARTITIONED_LANES[-1]}, or "
            "take this out",
            depends_on=("lane",),
        )


def _taken(
    keys: MeshKeys, exchange: ExchangeKeys, names: set[str], at: Location
) -> Iterator[Violation]:
    for partition in range(1, exchange.partitions):
        name = partition_name(exchange.name, partition)
        if name in names:
            yield Violation(
                at,
                f"a partition of `{exchange.name}` has the name of exchange `{name}`",
                "name one of the exchanges otherwise",
            )
    made = Names(keys.mesh)
    try:
        made.egress(exchange.name, exchange.partitions - 1)
        made.partitions(exchange.name)
    except NameTooLong as error:
        yield Violation(
            at,
            f"a name made for the partitions has {error.length} bytes, brokers take 255",
            f"shorten {error.made_from}",
        )


def _placed(keys: MeshKeys, exchange: ExchangeKeys) -> Iterator[Violation]:
    for name, site in keys.sites.items():
        if exchange.name in site.place:
            yield Violation(
                ("sites", name, "place", exchange.name),
                f"`{exchange.name}` has partitions, which are spread over the slots by themselves",
                "take it out of `place`, or its `partitions` out",
            )
