"""Rules for exchanges: names, keys, sites, the patterns that sites want, lanes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from federation.destinations import literal_wildcard, may_both_match
from federation.lanes import NORMAL
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.exchange_keys import ExchangeKeys
from federation.mesh_file.keys.site_keys import SiteKeys, SiteWords
from federation.mesh_file.problem import (
    Severity,
    Violation,
    literal_wildcards,
    unknown_word,
)
from federation.mesh_file.quantities import show_duration
from federation.mesh_file.tree import Location
from federation.names import Names, NameTooLong
from federation.wording import nearest

RESERVED_EXCHANGES = ("amq.", "isthmus.")


def exchange_violations(keys: MeshKeys, *, sites_are_known: bool = True) -> Iterator[Violation]:
    """Check each exchange by itself."""
    names, words = Names(keys.mesh), SiteWords(keys.sites)
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
        if sites_are_known:
            yield from _sites_of_exchange(exchange, at, words, keys.sites)
        if exchange.priorities == "order" and exchange.acks == "remote":
            yield Violation(
                (*at, "priorities"),
                "a classic queue, which keeps the order, may lose in a power cut what it "
                "confirmed: `acks: remote` promises more than that",
                "write acks: local, or leave priorities out",
                depends_on=("acks",),
            )
        if sites_are_known and exchange.priorities == "order":
            yield from _classic_on_a_cluster(exchange, at, words, keys.sites)
        shortest, longest = exchange.retry.backoff
        if not 0 < shortest <= longest:
            yield Violation(
                (*at, "retry", "backoff"),
                "the first wait must be above 0 and not longer than the longest",
                "write it like [0.2s, 30s]",
            )
        elif "backoff" in exchange.retry.model_fields_set and longest > keys.outage_window:
            yield Violation(
                (*at, "retry", "backoff", 1),
                "a wait longer than the outage window: the message would be too old by then",
                f"write at most {show_duration(keys.outage_window)}",
            )
        yield from _deadline(exchange, at, keys.outage_window)


def _classic_on_a_cluster(
    exchange: ExchangeKeys, at: Location, words: SiteWords, sites: Mapping[str, SiteKeys]
) -> Iterator[Violation]:
    origins = words.sites_of(exchange.origins) if exchange.origins else sites
    for name in origins:
        if sites[name].is_cluster:
            yield Violation(
                (*at, "priorities"),
                f"`{name}` is a cluster, and a classic queue, which keeps the order, is on one of "
                "its nodes alone: what is published while that node is away would not wait there",
                "leave priorities out; or name in `from` the sites whose brokers are single nodes",
                depends_on=("from",),
            )
            return


def _deadline(exchange: ExchangeKeys, at: Location, outage_window_s: float) -> Iterator[Violation]:
    deadline_s = exchange.deadline
    if deadline_s is None:
        return
    if deadline_s <= 0:
        yield Violation(
            (*at, "deadline"), "a deadline is above 0", "write the longest that is fine, such as 2m"
        )
    elif deadline_s > outage_window_s:
        yield Violation(
            (*at, "deadline"),
            "longer than the outage window: what takes that long does not come at all",
            f"write at most {show_duration(outage_window_s)}",
        )


def nothing_carried(keys: MeshKeys) -> Iterator[Violation]:
    """Warn of a mesh without exchanges in a file that is read whole: it may be meant, but seldom
    is.
    """
    if not keys.exchanges:
        yield Violation(
            ("exchanges",),
            "no exchange, so this mesh carries nothing",
            "add exchanges: [{name: orders}]",
            severity=Severity.WARNING,
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
        elif exchange.type == "topic":
            yield from literal_wildcards((*at, "keys", k), key)


def _sites_of_exchange(
    exchange: ExchangeKeys, at: Location, words: SiteWords, sites: Mapping[str, SiteKeys]
) -> Iterator[Violation]:
    for key, words_of_key in (
        ("from", exchange.origins),
        ("to", exchange.destinations),
        ("never_via", exchange.never_via),
    ):
        for k, word in enumerate(words_of_key or ()):
            if not words.stands_for(word):
                yield unknown_word((*at, key, k), word, sites, words.tags)
            elif words_of_key is not None and word in words_of_key[:k]:
                yield Violation((*at, key, k), f"`{word}` is here twice", "keep one of them")
    yield from _avoided(exchange, at, words)
    origins = words.sites_of(exchange.origins or ())
    if len(origins) == 1 and origins == words.sites_of(exchange.destinations or ()):
        yield Violation(
            (*at, "to"),
            f"`{exchange.name}` goes from `{origins[0]}` to itself only",
            "name another site: a site never gets its own messages back",
        )


def _avoided(exchange: ExchangeKeys, at: Location, words: SiteWords) -> Iterator[Violation]:
    """Check `never_via` against `from` and `to`."""
    if not exchange.never_via:
        return
    for key, words_of_key in (("from", exchange.origins), ("to", exchange.destinations)):
        named = set(words.sites_of(words_of_key or ()))
        for k, word in enumerate(exchange.never_via):
            both = [site for site in words.stands_for(word) if site in named]
            if both:
                more = f" and {len(both) - 1} more" if len(both) > 1 else ""
                yield Violation(
                    (*at, "never_via", k),
                    f"`{both[0]}`{more} may not hold `{exchange.name}`, and is in its `{key}`",
                    f"take it out of `never_via` or of `{key}`",
                    depends_on=(key,),
                )
    left = words.all_but(exchange.never_via)
    if len(left) < 2 and exchange.origins is None and exchange.destinations is None:
        yield Violation(
            (*at, "never_via"),
            f"this leaves {f'only `{left[0]}`' if left else 'no site'} to hold `{exchange.name}`",
            "name fewer sites",
        )


def _too_long(error: NameTooLong) -> tuple[str, str]:
    return (
        f"a queue's name made of this has {error.length} bytes, brokers take 255",
        f"shorten {error.made_from}",
    )


MAX_KEY_BYTES = 255


def wants_violations(keys: MeshKeys, *, tags_are_known: bool = True) -> Iterator[Violation]:
    """Check `wants` of all sites."""
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
            yield from _wanted_patterns(at, exchanges[name], patterns)


def _unknown_exchange(at: Location, name: str, known: Sequence[str]) -> Violation:
    likely = nearest(name, known)
    mend = f"did you mean `{likely}`?" if likely else f"the exchanges are {', '.join(known[:8])}"
    if not known:
        mend = "add it to `exchanges`, or take it out"
    return Violation(at, f"there is no exchange `{name}`", mend, True)


def _wanted_patterns(
    at: Location, exchange: ExchangeKeys, patterns: Sequence[str]
) -> Iterator[Violation]:
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


def lane_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check the lanes of exchanges, and the rates of the mesh and its links."""
    lanes = list(keys.lanes or ())
    for n, exchange in enumerate(keys.exchanges):
        at = ("exchanges", n, "lane")
        if exchange.lane in lanes or (exchange.lane == NORMAL and not lanes):
            continue
        if not lanes:
            yield Violation(
                at, "the mesh has no lanes", "add lanes: [urgent, normal, bulk], or take this out"
            )
            continue
        likely = nearest(exchange.lane, lanes)
        mend = f"did you mean `{likely}`?" if likely else f"the lanes are {', '.join(lanes)}"
        yield Violation(at, f"there is no lane `{exchange.lane}`", mend)
    limits = [keys.max_rate, *(link.max_rate for link in keys.links)]
    limits += [site.max_rate for site in keys.sites.values()]
    if lanes and not any(limits):
        yield Violation(
            ("lanes",),
            "lanes share a link by weight only where it has a `max_rate`; without one, what each "
            "gets is up to the network",
            "add max_rate, a little below what the line carries; or leave it: urgent messages do "
            "not wait behind a backlog of others all the same",
            severity=Severity.WARNING,
        )
