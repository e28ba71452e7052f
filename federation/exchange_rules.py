"""What exchanges must satisfy: names, keys, sites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from federation.mesh_document import ExchangeKeys, MeshKeys
from federation.names import Names, NameTooLong
from federation.problems import Severity
from federation.violation import Violation, unknown_site
from federation.yaml_tree import Location

RESERVED_EXCHANGES = ("amq.", "isthmus.")


def exchange_violations(keys: MeshKeys) -> Iterator[Violation]:
    """All that is wrong with the exchanges themselves."""
    names = Names(keys.mesh)
    first: dict[str, str] = {}
    for n, exchange in enumerate(keys.exchanges):
        at: Location = ("exchanges", n)
        yield from _exchange_name(exchange, at)
        try:
            names.egress(exchange.name)
        except NameTooLong as error:
            yield Violation((*at, "name"), *_too_long(error))
        made = [exchange.name, *([f"{exchange.name}.in"] if exchange.mode == "split" else [])]
        for name in made:
            if name in first:
                yield Violation(
                    (*at, "name"),
                    f"there is an exchange `{name}` already, {first[name]}",
                    "name one of them otherwise",
                )
            else:
                whose = "by that name" if name == exchange.name else f"that of split `{made[0]}`"
                first[name] = whose
        yield from _keys_of_exchange(exchange, at)
        yield from _sites_of_exchange(exchange, at, list(keys.sites))
        if exchange.order == "best_effort":
            yield Violation(
                (*at, "order"),
                "this version keeps strict order here too: the flow waits for a refused message",
                "leave it if that does no harm; nothing is lost by it",
                severity=Severity.WARNING,
            )
        shortest, longest = exchange.retry.backoff
        if not 0 < shortest <= longest:
            yield Violation(
                (*at, "retry", "backoff"),
                "the first wait must be above 0 and not longer than the longest",
                "write it like [0.2s, 30s]",
            )


def _exchange_name(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    name = exchange.name
    reserved = next((start for start in RESERVED_EXCHANGES if name.startswith(start)), None)
    if reserved is not None:
        yield Violation(
            (*at, "name"), f"names that begin with `{reserved}` are reserved", "name it otherwise"
        )
    elif not name.isprintable() or name != name.strip():
        yield Violation(
            (*at, "name"), "blanks around the name, or letters that cannot be seen", "take them out"
        )


def _keys_of_exchange(exchange: ExchangeKeys, at: Location) -> Iterator[Violation]:
    if exchange.type == "direct" and not exchange.keys:
        yield Violation(
            at if exchange.keys is None else (*at, "keys"),
            f"the direct exchange `{exchange.name}` needs the keys of what leaves a site",
            "add keys: [KEY, ...]: a direct exchange has no key that stands for all",
            depends_on=("keys",),
        )
    if exchange.keys is None:
        return
    if exchange.type in ("fanout", "headers"):
        yield Violation(
            (*at, "keys"),
            f"a {exchange.type} exchange takes no keys: all of it leaves a site",
            "take `keys` out, or make it type: topic",
            True,
        )
    elif exchange.type == "topic" and not exchange.keys:
        yield Violation(
            (*at, "keys"),
            "no key, so nothing leaves a site",
            'write "#" for all',
            depends_on=("type",),
        )
    for k, key in enumerate(exchange.keys):
        if len(key.encode()) > 255:
            yield Violation((*at, "keys", k), "a key has at most 255 bytes", "shorten it")
        elif key in exchange.keys[:k]:
            yield Violation((*at, "keys", k), f"the key `{key}` is here twice", "keep one of them")
        elif exchange.type == "direct" and re.search(r"(^|\.)[*#](\.|$)", key):
            yield Violation(
                (*at, "keys", k),
                f"a direct exchange takes `{key}` word for word",
                "make it type: topic if * and # should stand for any words",
                severity=Severity.WARNING,
            )


def _sites_of_exchange(
    exchange: ExchangeKeys, at: Location, sites: Sequence[str]
) -> Iterator[Violation]:
    for key, named in (("from", exchange.origins), ("to", exchange.destinations)):
        for k, site in enumerate(named or ()):
            if site not in sites:
                yield unknown_site((*at, key, k), site, sites)
            elif named is not None and site in named[:k]:
                yield Violation((*at, key, k), f"`{site}` is here twice", "keep one of them")
    if exchange.origins is not None and exchange.origins == exchange.destinations == [
        exchange.origins[0]
    ]:
        yield Violation(
            (*at, "to"),
            f"`{exchange.name}` goes from `{exchange.origins[0]}` to itself only",
            "name another site: a site never gets its own messages back",
        )


def _too_long(error: NameTooLong) -> tuple[str, str]:
    return (
        f"a queue's name made of this has {error.length} bytes, brokers take 255",
        f"shorten {error.made_from}",
    )
