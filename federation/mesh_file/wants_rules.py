"""What a site may say of the messages that it wants. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from federation.mesh_file.document import MeshKeys
from federation.mesh_file.exchange_keys import ExchangeKeys
from federation.mesh_file.nearest import nearest
from federation.mesh_file.problems import Severity
from federation.mesh_file.tags import SiteWords
from federation.mesh_file.violation import Violation, literal_wildcards
from federation.mesh_file.yaml_tree import Location
from federation.topic_keys import literal_wildcard, may_both_match

MAX_KEY_BYTES = 255


def wants_violations(keys: MeshKeys, *, tags_are_known: bool = True) -> Iterator[Violation]:
    """All that is wrong with `wants`."""
    words = SiteWords(keys.sites)
    exchanges = {exchange.name: exchange for exchange in keys.exchanges}
    goes_to = {
        name: frozenset(words.sites_of(exchange.destinations))
        if exchange.destinations is not None
        else frozenset(words.all_but(exchange.never_via))
        for name, exchange in exchanges.items()
    }
    for site, site_keys in keys.sites.items():
        for name, patterns in site_keys.wants.items():
            at: Location = ("sites", site, "wants", name)
            if name not in exchanges:
                yield _unknown_exchange(at, name, list(exchanges))
                continue
            if tags_are_known and site not in goes_to[name]:
                yield Violation(
                    at,
                    f"`{name}` does not come to `{site}` at all",
                    f"add `{site}` to its `to`, or take this out",
                    True,
                    severity=Severity.WARNING,
                )
            yield from _patterns(at, exchanges[name], patterns)


def _unknown_exchange(at: Location, name: str, known: Sequence[str]) -> Violation:
    meant = nearest(name, known)
    mend = f"did you mean `{meant}`?" if meant else f"the exchanges are {', '.join(known[:8])}"
    if not known:
        mend = "add it to `exchanges`, or take it out"
    return Violation(at, f"there is no exchange `{name}`", mend, True)


def _patterns(at: Location, exchange: ExchangeKeys, patterns: Sequence[str]) -> Iterator[Violation]:
    if exchange.type in ("fanout", "headers"):
        yield Violation(
            at,
            f"`{exchange.name}` is a {exchange.type} exchange, whose messages are not told apart "
            "by keys",
            "make it type: topic or direct, or take this out",
            True,
            depends_on=("type",),
        )
        return
    if not patterns:
        yield Violation(
            at,
            f"no pattern, so nothing of `{exchange.name}` is wanted",
            'write ["#"] for all of it, or leave the site out of its `to`',
        )
    for n, pattern in enumerate(patterns):
        here: Location = (*at, n)
        if len(pattern.encode()) > MAX_KEY_BYTES:
            yield Violation(here, "a key has at most 255 bytes", "shorten it")
        elif pattern in patterns[:n]:
            yield Violation(here, f"the pattern `{pattern}` is here twice", "keep one of them")
        elif exchange.type == "direct" and re.search(r"(^|\.)[*#](\.|$)", pattern):
            yield Violation(
                here,
                f"a direct exchange takes `{pattern}` word for word",
                "make it type: topic if * and # should stand for any words",
                severity=Severity.WARNING,
            )
        elif exchange.type == "topic" and literal_wildcard(pattern):
            yield from literal_wildcards(here, pattern)
        elif not _may_come(exchange, pattern):
            yield Violation(
                here,
                f"no key of `{exchange.name}` fits `{pattern}`, so nothing of it will come",
                f"what leaves a site is {', '.join(exchange.keys or ())}: write one of these, or "
                "something narrower",
                severity=Severity.WARNING,
            )


def _may_come(exchange: ExchangeKeys, pattern: str) -> bool:
    if exchange.keys is None:
        return True
    if exchange.type == "direct":
        return pattern in exchange.keys
    return any(may_both_match(key, pattern) for key in exchange.keys)
