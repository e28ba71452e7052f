"""The revision of a mesh: a hash of what its file comes to. Pure.

Comments, the order of keys, the folder, the files that sites are spread over and how sites are
named (tags, templates) leave no trace, and neither does a password in clear. What has its default
leaves none either: a key that a later version adds changes no revision of a file that lacks it, so
that nodes of two versions agree on one file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, asdict, fields
from typing import Any

from federation.mesh import OLDEST_BATCH_FORMAT, Exchange, Link, Mesh, SigningRule, Site
from federation.mesh_file.document import MeshKeys

_FORM = "isthmus mesh 2"
"""Changes whenever the same mesh would be written otherwise here, or a default changes."""


def revision_of(mesh: Mesh, keys: MeshKeys) -> str:
    """Twelve hexadecimal digits. `keys` tell paths and passwords as they were written."""
    said = {
        "name": mesh.name,
        "outage_window_s": mesh.outage_window_s,
        "rule": mesh.rule,
        "sites": {name: _site(site, keys) for name, site in mesh.sites.items()},
        "exchanges": {name: _exchange(exchange) for name, exchange in mesh.exchanges.items()},
        "links": sorted((_link(link) for link in mesh.links), key=_pair),
    }
    if mesh.batch_format != OLDEST_BATCH_FORMAT:
        said["batch_format"] = mesh.batch_format
    if mesh.lanes:
        said["lanes"] = [asdict(lane) for lane in mesh.lanes]
    if mesh.signing is not SigningRule.NONE:
        said["signing"] = {
            "rule": mesh.signing,
            "unsigned": mesh.unsigned,
            "repairers": sorted(mesh.repairers or ()),
            "revoked_keys": sorted(mesh.revoked_keys),
        }
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"{_FORM}\n{canonical}".encode()).hexdigest()[:12]


def _link(link: Link) -> dict[str, Any]:
    said = _said(link)
    if link.max_rate is not None:
        said["max_rate"] = asdict(link.max_rate)
    return said


def _pair(link: dict[str, Any]) -> tuple[str, str]:
    return link["sender"], link["receiver"]


def _said(value: Any) -> dict[str, Any]:
    """The fields of a frozen value that differ from their defaults."""
    said: dict[str, Any] = {}
    for one in fields(value):
        own = getattr(value, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if own != default:
            said[one.name] = own
    return said


def _site(site: Site, keys: MeshKeys) -> dict[str, Any]:
    said = _said(site)
    said.pop("tags", None)
    if "wants" in said:
        said["wants"] = {name: sorted(patterns) for name, patterns in site.wants.items()}
    if "log" in said:
        said["log"] = _said(site.log)
    if site.max_rate is not None:
        said["max_rate"] = asdict(site.max_rate)
    written = keys.sites[site.name]
    if site.private_key:
        said["private_key"] = written.private_key
    if "public_keys" in said:
        said["public_keys"] = sorted(site.public_keys)
    if "admin_access" in said and written.admin is not None:
        said["admin_access"] = written.admin.model_dump(exclude_none=True, exclude={"url"})
    if site.link_password is not None:
        said["link_password"] = written.link_password
    if site.broker is not None:
        password = written.password or ""
        is_reference = password.startswith(("env:", "file:"))
        said["broker"] = {
            **_said(site.broker),
            "password": password if is_reference else "",
            "tls": written.tls.model_dump(exclude_none=True) if written.tls is not None else {},
        }
    return said


def _exchange(exchange: Exchange) -> dict[str, Any]:
    said = _said(exchange)
    # Sets, whatever order they were written in; a tag's sites stand in the order of the file.
    for name in ("keys", "origins", "destinations", "never_via"):
        if said.get(name) is not None:
            said[name] = sorted(said[name])
    for name in ("identity", "retry"):
        if name in said:
            said[name] = _said(said[name])
    return said
