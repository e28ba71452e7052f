"""Rules for signed batches: keys, and a format with room for signatures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from federation.mesh import SIGNED_BATCH_FORMAT
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.keys.site_keys import SiteKeys, SiteWords
from federation.mesh_file.problem import Severity, Violation, unknown_word
from federation.mesh_file.tree import Location

MOST_KEYS = 2
"""Public keys of a site: before and after a change."""
_ADD_KEYS = "run `isthmus keygen` and add its `public_key`"


def signing_violations(keys: MeshKeys, *, tags_are_known: bool) -> Iterator[Violation]:
    """Check keys and signatures."""
    signs = keys.signing != "none"
    if signs and keys.batch_format < SIGNED_BATCH_FORMAT:
        yield Violation(
            ("signing",),
            f"batches of format {keys.batch_format} have no room for a signature",
            f"write batch_format: {SIGNED_BATCH_FORMAT}, once every site's node reads it",
        )
    if signs and keys.unsigned == "accept":
        yield Violation(
            ("unsigned",),
            "batches without a signature are taken, so that any site can send in another's name",
            "take it out an outage window after the last site has begun to sign",
            severity=Severity.WARNING,
        )
    if not signs and keys.unsigned is not None:
        yield Violation(
            ("unsigned",), "`unsigned` where nothing is signed", "add signing: ed25519", True
        )
    if not signs and keys.repairs_from is not None:
        yield Violation(
            ("repairs_from",),
            "`repairs_from` where nothing is signed: all sites' repairs are taken",
            "add signing: ed25519",
            True,
        )
    if not signs and keys.revoked_keys is not None:
        yield Violation(
            ("revoked_keys",),
            "`revoked_keys` where nothing is signed",
            "add signing: ed25519",
            True,
        )
    revoked = set(keys.revoked_keys or ())
    words = SiteWords(keys.sites)
    for number, word in enumerate(keys.repairs_from or ()):
        if tags_are_known and not words.stands_for(word):
            yield unknown_word(("repairs_from", number), word, keys.sites, words.tags)
    owners: dict[str, str] = {}
    for name, site in keys.sites.items():
        yield from _keys(name, site, signs=signs, needed=signs and keys.unsigned != "accept")
        for number, key in enumerate(site.public_key or ()):
            if key in revoked:
                yield Violation(
                    ("sites", name, "public_key", number),
                    "this public key is among `revoked_keys`",
                    f"give `{name}` another pair: `isthmus keygen`",
                )
            if (owner := owners.setdefault(key, name)) != name:
                yield Violation(
                    ("sites", name, "public_key", number),
                    f"this is a public key of site `{owner}` too",
                    "give each site its own: whoever steals one could send in both names",
                )


def _keys(name: str, site: SiteKeys, *, signs: bool, needed: bool) -> Iterator[Violation]:
    at: Location = ("sites", name)
    if site.public_key is None:
        if needed:
            yield Violation(
                at,
                f"`{name}` has no `public_key`",
                _ADD_KEYS,
                True,
                depends_on=("public_key",),
            )
        if site.private_key is not None:
            yield Violation(
                (*at, "private_key"),
                "a `private_key` without its `public_key`",
                _ADD_KEYS,
                True,
                depends_on=("public_key",),
            )
        return
    public: Location = (*at, "public_key")
    if not signs:
        yield Violation(
            public,
            "a `public_key` where nothing is signed",
            "add signing: ed25519 to the mesh",
            True,
            severity=Severity.WARNING,
        )
    if len(site.public_key) > MOST_KEYS:
        yield Violation(
            public,
            f"{len(site.public_key)} public keys",
            f"write at most {MOST_KEYS}: the present one and the one before or after it",
        )
    if len({*site.public_key}) < len(site.public_key):
        yield Violation(public, "the same public key twice", "keep one of them")
    if site.private_key is None:
        yield Violation(
            public,
            f"`{name}` has a public key and no `private_key`",
            "add private_key: file:PATH or env:NAME, where its node finds it",
            True,
            depends_on=("private_key",),
        )
    elif not re.fullmatch(r"(env:[^\s]+|file:\S.*)", site.private_key):
        # Not quoted: the text may be the key itself.
        yield Violation(
            (*at, "private_key"),
            "this names no private key",
            "write env:NAME or file:PATH, and never the key itself",
        )
