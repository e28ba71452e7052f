"""Rule that a certificate and its private key come together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh_file.keys.site_keys import AdminKeys, TlsKeys
from federation.mesh_file.problem import Violation
from federation.mesh_file.tree import Location


def pair_violations(at: Location, keys: TlsKeys | AdminKeys) -> Iterator[Violation]:
    """Check the `certificate` and the `key` of a section."""
    has = {"certificate": keys.certificate, "key": keys.private_key}
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if has[key] is not None and has[other] is None:
            yield Violation(
                (*at, key),
                f"a `{key}` without its `{other}`",
                f"add {other}: PATH of the PEM file",
                True,
            )
