"""Changes from one state of a mesh to another, in the words of its file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from federation.lanes import RateSchedule, lane_word
from federation.mesh import Begins, Mesh, Site
from federation.mesh_file.quantities import show_duration

_WORDS = {
    "origins": "from",
    "destinations": "to",
    "begins": "from",
    "outage_window_s": "outage_window",
    "deadline_s": "deadline",
    "rule": "forwarding rule",
    "public_keys": "public_key",
    "more_amqp": "further addresses",
    "more_streams": "further stream addresses",
    "more_managements": "further management addresses",
}
"""Fields that the file names otherwise."""
_NOTHING: dict[str, str] = {"origins": "all", "destinations": "all"}


def mesh_diff(former: Mesh, new: Mesh) -> list[str]:
    """Return the changes, a line each: `+` new, `-` gone, `~` different. Sites first, then links,
    exchanges, and the mesh as a whole.
    """
    lines = [
        *_differences("site", former.sites, new.sites),
        *_differences("link", _links(former), _links(new)),
        *_differences("exchange", former.exchanges, new.exchanges),
    ]
    if former.outage_window_s != new.outage_window_s:
        before, after = map(show_duration, (former.outage_window_s, new.outage_window_s))
        lines.append(f"~ outage_window {before} -> {after}")
    if former.rule != new.rule:
        lines.append(f"~ {_WORDS['rule']} {former.rule.value} -> {new.rule.value}")
    if former.repairers != new.repairers:
        was, now = (_value_text("repairers", mesh.repairers) for mesh in (former, new))
        lines.append(f"~ repairs_from {was} -> {now}")
    lines += [f"+ revoked_keys {key}" for key in new.revoked_keys if key not in former.revoked_keys]
    lines += [f"- revoked_keys {key}" for key in former.revoked_keys if key not in new.revoked_keys]
    if former.batch_format != new.batch_format:
        lines.append(f"~ batch_format {former.batch_format} -> {new.batch_format}")
    if former.lanes != new.lanes:
        lines.append(f"~ lanes {_lanes(former)} -> {_lanes(new)}")
    for name in ("signing", "unsigned"):
        before, after = getattr(former, name).value, getattr(new, name).value
        if before != after:
            lines.append(f"~ {name} {before} -> {after}")
    return lines


def _lanes(mesh: Mesh) -> str:
    return ", ".join(f"{lane.name} ({lane.weight})" for lane in mesh.lanes) or "none"


def _links(mesh: Mesh) -> dict[str, object]:
    return {link.name: link for link in mesh.links}


def _differences(
    kind: str, former: Mapping[str, object], new: Mapping[str, object]
) -> Iterable[str]:
    for name in new:
        if name not in former:
            yield f"+ {kind} {name}{_start_text(new[name])}"
    for name in former:
        if name not in new:
            yield f"- {kind} {name}"
    for name, after in new.items():
        before = former.get(name)
        if before is not None and before != after:
            yield f"~ {kind} {name}: {', '.join(_fields(before, after))}"


def _start_text(new: object) -> str:
    if not isinstance(new, Site):
        return ""
    if new.begins is Begins.START:
        return ", from start: what the logs still hold comes to it too"
    return ", from now: what is published from now on comes to it"


def _fields(before: Any, after: Any) -> Iterable[str]:
    for field in fields(before):
        old, now = getattr(before, field.name), getattr(after, field.name)
        if old == now:
            continue
        word = _WORDS.get(field.name, field.name)
        if field.name in ("password", "link_password"):
            yield f"{word} changed"  # never shown, not even the former one
        elif is_dataclass(old) and is_dataclass(now) and not isinstance(now, RateSchedule):
            yield f"{word} ({', '.join(_fields(old, now))})"
        else:
            yield f"{word} {_value_text(field.name, old)} -> {_value_text(field.name, now)}"


def _value_text(name: str, value: Any) -> str:
    if name == "repairers" and value is None:
        return "all"
    if value is None or value == ():
        return _NOTHING.get(name, "none")
    if isinstance(value, RateSchedule):
        return str(value)
    if name == "lane":
        return lane_word(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_value_text(key, own)}" for key, own in value.items()) or "none"
    if is_dataclass(value):
        return "set"
    if name.endswith("_s"):
        return show_duration(value)
    return str(value)
