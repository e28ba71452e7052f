"""Rules for a mesh as a whole, which call all others: names, outage window, logs. Pure.

The size of a log follows from the rate at which it grows. If `rate` gives that rate, window and
limit are compared here; otherwise `isthmus plan` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.brokers.provision import LOG_SEGMENT_BYTES
from federation.mesh import RETENTION_MARGIN_S, retention_s
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import LogKeys, log_of_site
from federation.mesh_file.keys.values import PLAIN_NAME
from federation.mesh_file.problem import Severity, Violation
from federation.mesh_file.quantities import show_duration, show_size
from federation.mesh_file.rules.exchange_rules import (
    exchange_violations,
    lane_violations,
    wants_violations,
)
from federation.mesh_file.rules.link_rules import (
    link_violations,
    reach_violations,
    reference_violations,
    separate_users_violations,
    shared_password_violations,
)
from federation.mesh_file.rules.node_rules import node_violations
from federation.mesh_file.rules.partition_rules import partition_violations
from federation.mesh_file.rules.signing_rules import signing_violations
from federation.mesh_file.rules.site_rules import admin_violations, site_violations
from federation.mesh_file.rules.slot_rules import slot_violations
from federation.mesh_file.rules.topology_rules import topology_missing, topology_violations
from federation.mesh_file.tree import Location

MAX_WINDOW_S = 366 * 86_400.0
MIN_WINDOW_S = 1.0
RESERVED_SITES = ("from", "to", "all")
_PLAIN = re.compile(PLAIN_NAME)
_PLAIN_MEND = "write 1 to 63 letters (a to z), digits, - and _, beginning with a letter or digit"


def violations(
    keys: MeshKeys,
    *,
    graph_is_known: bool = True,
    sites_are_known: bool = True,
    tags_are_known: bool = True,
) -> Iterator[Violation]:
    """Apply all rules. If links, sites or tags may lack some that could not be read, violations
    that would only follow from their absence are left out.
    """
    yield from _names(keys)
    yield from _window(keys)
    yield from log_violations(keys)
    yield from lane_violations(keys)
    yield from site_violations(keys)
    yield from node_violations(keys)
    yield from slot_violations(keys)
    yield from partition_violations(keys)
    yield from signing_violations(keys, tags_are_known=tags_are_known and sites_are_known)
    yield from admin_violations(keys)
    yield from reference_violations(keys)
    yield from separate_users_violations(keys)
    if sites_are_known and not keys.sites:
        example = "sites: {paris: {}, tokyo: {}, sydney: {}}"
        if "sites" in keys.model_fields_set:
            yield Violation(("sites",), "there is no site", f"write {example}")
        else:
            yield Violation((), "`sites` is missing", f"add {example}, or branches")
    if not sites_are_known or not keys.sites:
        if graph_is_known:
            yield from topology_missing(keys)
        yield from exchange_violations(keys, sites_are_known=False)
        yield from wants_violations(keys, tags_are_known=False)
        yield from link_violations(keys, sites_are_known=False)
        return
    yield from exchange_violations(keys, sites_are_known=tags_are_known)
    yield from wants_violations(keys, tags_are_known=tags_are_known)
    shape = list(topology_violations(keys)) if graph_is_known else []
    yield from shape
    yield from link_violations(keys, graph_is_known=graph_is_known)
    if not graph_is_known:
        return
    # A wrong shape leaves sites out of reach, which is no mistake of its own.
    if not shape:
        yield from reach_violations(keys)
        yield from shared_password_violations(keys)


def _names(keys: MeshKeys) -> Iterator[Violation]:
    if not _PLAIN.fullmatch(keys.mesh):
        yield Violation(("mesh",), f"`{keys.mesh}` cannot name a mesh", _PLAIN_MEND)
    for site in keys.sites:
        if site in RESERVED_SITES:
            yield Violation(
                ("sites", site), f"`{site}` is a reserved word", "name the site otherwise", True
            )
        elif not _PLAIN.fullmatch(site):
            yield Violation(("sites", site), f"`{site}` cannot name a site", _PLAIN_MEND, True)
    for name, site_keys in keys.sites.items():
        for n, tag in enumerate(site_keys.tags):
            at = ("sites", name, "tags", n)
            if tag in keys.sites:
                yield Violation(
                    at,
                    f"`{tag}` is the name of a site too, so nobody could tell which is meant",
                    "name the tag otherwise",
                )
            elif tag in RESERVED_SITES:
                yield Violation(at, f"`{tag}` is a reserved word", "name the tag otherwise")
            elif not _PLAIN.fullmatch(tag):
                yield Violation(at, f"`{tag}` cannot be a tag", _PLAIN_MEND)
            elif tag in site_keys.tags[:n]:
                yield Violation(at, f"the tag `{tag}` is here twice", "keep one of them")


def _window(keys: MeshKeys) -> Iterator[Violation]:
    if not MIN_WINDOW_S <= keys.outage_window <= MAX_WINDOW_S:
        yield Violation(
            ("outage_window",),
            "this outage window is not possible",
            "write one from 1s to 366d; it is what every site's disk must hold",
        )


MIN_LOG_BYTES = 4 * LOG_SEGMENT_BYTES
"""Least limit: a broker frees whole segments only, and never the segment being written."""
MAX_LOG_BYTES = 10**15


def log_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check the limits of the logs."""
    yield from _log_limit(("log",), keys.log, keys.log)
    yield from _window_in_log(keys, ("log",), keys.log, keys.log)
    for name, site in keys.sites.items():
        if site.log is not None:
            at, whole = ("sites", name, "log"), log_of_site(keys.log, site.log)
            yield from _log_limit(at, site.log, whole)
            yield from _window_in_log(keys, at, site.log, whole)


def _log_limit(at: Location, own: LogKeys, whole: LogKeys) -> Iterator[Violation]:
    if own.max_bytes is not None and own.max_bytes < MIN_LOG_BYTES:
        yield Violation(
            (*at, "max_bytes"),
            f"a log of {show_size(own.max_bytes)} is not possible: it goes by segments of 64MiB",
            "write 256MiB or more",
        )
    if own.max_bytes is not None and own.max_bytes > MAX_LOG_BYTES:
        yield Violation(
            (*at, "max_bytes"),
            f"a log of {show_size(own.max_bytes)} is not possible: no disk has that",
            "write what this site's disk can spare, or leave it out",
        )
    if whole.max_bytes is None:
        for key in ("on_full", "rate"):
            if getattr(own, key) is not None:
                yield Violation(
                    (*at, key),
                    f"`{key}` says nothing without `max_bytes`: the log takes what it needs",
                    "add max_bytes: 20GB, or take it out",
                    True,
                    severity=Severity.WARNING,
                    depends_on=("max_bytes",),
                )


def _window_in_log(
    keys: MeshKeys, at: Location, own: LogKeys, whole: LogKeys
) -> Iterator[Violation]:
    if whole.max_bytes is None or whole.rate is None or whole.max_bytes < MIN_LOG_BYTES:
        return
    need = whole.rate * retention_s(keys.outage_window)
    if need <= whole.max_bytes:
        return
    if at == ("log",) and "outage_window" in keys.model_fields_set:
        at = ("outage_window",)
    else:
        at = (*at, "rate" if own.max_bytes is None else "max_bytes")
    held = whole.max_bytes / max(whole.rate, 1)
    longest = int(max(min(held / 1.1, held - RETENTION_MARGIN_S), 0))
    longest -= longest % (3600 if longest >= 3600 else 60)
    mend = "write max_bytes: " + show_size(-(-need // 10**9) * 10**9)
    if longest:
        mend += f", or an outage window of at most {show_duration(longest)}"
    yield Violation(
        at,
        f"an outage window of {show_duration(keys.outage_window)} and its margin, at "
        f"{show_size(whole.rate)}/s, take {show_size(need)} of log, more than the "
        f"{show_size(whole.max_bytes)} of `max_bytes`",
        mend,
        depends_on=("log",),
    )
