"""What the address of a node's admin port must satisfy."""

from __future__ import annotations

from collections.abc import Iterator

from federation.brokers.broker_uri import is_loopback, parse_admin
from federation.mesh_file.document import MeshKeys
from federation.mesh_file.site_keys import AdminKeys
from federation.mesh_file.violation import Violation
from federation.mesh_file.yaml_tree import Location

_SAFE = "admin: {url: https://HOST:PORT, token: file:PATH, certificate: PATH, key: PATH}"


def admin_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Loopback in clear, or TLS and a token: nothing between."""
    for name, site in keys.sites.items():
        if site.admin is not None:
            yield from _admin(("sites", name, "admin"), site.admin)


def _admin(at: Location, admin: AdminKeys) -> Iterator[Violation]:
    where = parse_admin(admin.url)
    if not where.tls:
        if not is_loopback(where.host):
            yield Violation(
                at,
                "http at an address that is not loopback tells everybody there all of the status",
                f"write {_SAFE}, or http://127.0.0.1:PORT",
            )
            return
        for key in ("token", "certificate", "private_key", "ca"):
            if getattr(admin, key) is not None:
                shown = "key" if key == "private_key" else key
                yield Violation(
                    (*at, shown),
                    f"a `{shown}` for an address that begins with http://, which is in clear",
                    "write https:// in `url`, or take it out",
                    True,
                )
        return
    if admin.token is None:
        yield Violation(
            at,
            "https without a token lets everybody there know all of the status",
            f"write {_SAFE}",
        )
    elif not admin.token.startswith(("env:", "file:")) or admin.token in ("env:", "file:"):
        yield Violation(
            (*at, "token"),
            "a token does not stand in the mesh file, which all sites have",
            "write env:NAME or file:PATH",
        )
    pair = {"certificate": admin.certificate, "key": admin.private_key}
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if pair[key] is not None and pair[other] is None:
            yield Violation(
                (*at, key), f"a `{key}` without its `{other}`", f"add {other}: PATH", True
            )
