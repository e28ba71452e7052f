"""What a valid mesh must satisfy beyond single values: one rule a function, all of them pure.

Each rule yields Violations at a place of the file; none raises, and each goes on where it can, so
that one run tells all that is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.mesh_file.admin_rules import admin_violations
from federation.mesh_file.document import MeshKeys
from federation.mesh_file.exchange_rules import exchange_violations
from federation.mesh_file.lane_rules import lane_violations
from federation.mesh_file.link_password_rules import (
    reference_violations,
    separate_users_violations,
    shared_password_violations,
)
from federation.mesh_file.link_rules import link_violations
from federation.mesh_file.log_rules import log_violations
from federation.mesh_file.reach_rules import reach_violations
from federation.mesh_file.signing_rules import signing_violations
from federation.mesh_file.site_rules import site_violations
from federation.mesh_file.topology_rules import topology_missing, topology_violations
from federation.mesh_file.values import PLAIN_NAME
from federation.mesh_file.violation import Violation
from federation.mesh_file.wants_rules import wants_violations

MAX_WINDOW_S = 366 * 86_400.0
MIN_WINDOW_S = 1.0
RESERVED_SITES = ("from", "to", "all")
_PLAIN = re.compile(PLAIN_NAME)
_PLAIN_SAID = "write 1 to 63 letters (a to z), digits, - and _, beginning with a letter or digit"


def violations(
    keys: MeshKeys,
    *,
    graph_is_known: bool = True,
    sites_are_known: bool = True,
    tags_are_known: bool = True,
) -> Iterator[Violation]:
    """All that is wrong. Where links, sites or tags may lack some that could not be read, nothing
    is said that would only follow from that.
    """
    yield from _names(keys)
    yield from _window(keys)
    yield from log_violations(keys)
    yield from lane_violations(keys)
    yield from site_violations(keys)
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
    # A shape that is wrong leaves sites out of reach, which is no mistake of its own.
    if not shape:
        yield from reach_violations(keys)
        yield from shared_password_violations(keys)


def _names(keys: MeshKeys) -> Iterator[Violation]:
    if not _PLAIN.fullmatch(keys.mesh):
        yield Violation(("mesh",), f"`{keys.mesh}` cannot name a mesh", _PLAIN_SAID)
    for site in keys.sites:
        if site in RESERVED_SITES:
            yield Violation(
                ("sites", site), f"`{site}` is a reserved word", "name the site otherwise", True
            )
        elif not _PLAIN.fullmatch(site):
            yield Violation(("sites", site), f"`{site}` cannot name a site", _PLAIN_SAID, True)
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
                yield Violation(at, f"`{tag}` cannot be a tag", _PLAIN_SAID)
            elif tag in site_keys.tags[:n]:
                yield Violation(at, f"the tag `{tag}` is here twice", "keep one of them")


def _window(keys: MeshKeys) -> Iterator[Violation]:
    if not MIN_WINDOW_S <= keys.outage_window <= MAX_WINDOW_S:
        yield Violation(
            ("outage_window",),
            "this outage window is not possible",
            "write one from 1s to 366d; it is what every site's disk must hold",
        )
