"""Orders of the page, each the command that a person would type. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.mesh import Mesh
from relay.delivery.put_aside import Aside

MOST_IDS = 1000
"""Messages of one order by their IDs; more are for `all`."""
_ID = re.compile(r"[0-9a-f]{1,64}")
ORDER_WITHIN_S = 120.0
REPAIR_WITHIN_S = 3600.0

Fields = Mapping[str, Any]


class BadOrder(ValueError):
    """Order that cannot be given; the text has the remedy."""


@dataclass(frozen=True, slots=True)
class OrderPlace:
    """Mesh file and state folder of the page, the present mesh, and the folders of audits by
    name.
    """

    file: Path
    state: Path
    mesh: Mesh
    audits: Mapping[str, Path]

    def site(self, fields: Fields) -> str:
        """Return the order's site. Raises BadOrder for a site that the mesh does not have."""
        site = fields.get("site")
        if not isinstance(site, str) or site not in self.mesh.sites:
            raise BadOrder(f"there is no site {site!r} in the mesh: reload the page")
        return site

    def target(self, fields: Fields) -> str:
        """Return the option that names the order's site or link. Raises BadOrder."""
        if "link" not in fields:
            return f"--site={self.site(fields)}"
        link = fields["link"]
        if link not in [one.name for one in self.mesh.links]:
            raise BadOrder(f"there is no link {link!r} in the mesh: reload the page")
        return f"--link={link}"


@dataclass(frozen=True, slots=True)
class PlannedOrder:
    """Words of the command after `isthmus`, and the time that it may take."""

    words: tuple[str, ...]
    within_s: float = ORDER_WITHIN_S


def planned_order(kind: str, fields: Fields, place: OrderPlace) -> PlannedOrder:
    """Return the command of an order. Raises BadOrder."""
    plan = _KINDS.get(kind)
    if plan is None:
        raise BadOrder(f"there is no order {kind!r}; there are {', '.join(_KINDS)}")
    words = plan(fields, place)
    within_s = REPAIR_WITHIN_S if kind == "repair" else ORDER_WITHIN_S
    return PlannedOrder((*words, f"--state={place.state}"), within_s)


def _pause(fields: Fields, place: OrderPlace) -> list[str]:
    return ["pause", str(place.file), place.target(fields)]


def _resume(fields: Fields, place: OrderPlace) -> list[str]:
    return ["resume", str(place.file), place.target(fields)]


def _drain(fields: Fields, place: OrderPlace) -> list[str]:
    return ["drain", str(place.file), place.site(fields), "--no-wait"]


def _accept_gap(fields: Fields, place: OrderPlace) -> list[str]:
    # By its ID: of a gap that has grown since a person looked nothing is accepted.
    (gap,) = _ids([fields.get("gap")])
    return ["accept-gap", str(place.file), place.site(fields), f"--gap={gap}", "--yes"]


def _retry(fields: Fields, place: OrderPlace) -> list[str]:
    return _mending("retry", fields, place)


def _drop(fields: Fields, place: OrderPlace) -> list[str]:
    return _mending("drop", fields, place)


def _mending(action: str, fields: Fields, place: OrderPlace) -> list[str]:
    aside, ids = fields.get("aside"), fields.get("ids")
    if aside not in list(Aside):
        raise BadOrder(f"say aside: {' or '.join(Aside)}")
    words = [str(aside), action, str(place.file), f"--site={place.site(fields)}"]
    if fields.get("all") is True:
        return [*words, "--all"]
    return [*words, *_ids(ids)]


def _repair(fields: Fields, place: OrderPlace) -> list[str]:
    folder = place.audits.get(str(fields.get("audit")))
    if folder is None:
        raise BadOrder(f"there is no audit {fields.get('audit')!r}: reload the page")
    return ["repair", str(place.file), f"--audit={folder}"]


def _ids(ids: object) -> list[str]:
    if not isinstance(ids, list) or not ids or len(ids) > MOST_IDS:
        raise BadOrder(f"say ids: 1 to {MOST_IDS} of them, or all: true")
    if not all(isinstance(one, str) and _ID.fullmatch(one) for one in ids):
        raise BadOrder("ids: as the list has them, in hexadecimal digits")
    return ids


_KINDS: Mapping[str, Callable[[Fields, OrderPlace], list[str]]] = {
    "pause": _pause,
    "resume": _resume,
    "drain": _drain,
    "accept-gap": _accept_gap,
    "retry": _retry,
    "drop": _drop,
    "repair": _repair,
}
