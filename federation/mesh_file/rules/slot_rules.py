"""Rules for the slots of a site. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.problem import Violation
from federation.mesh_file.tree import Location


def slot_violations(keys: MeshKeys) -> Iterator[Violation]:
    """Check `slots` and `place` of all sites."""
    exchanges = {exchange.name for exchange in keys.exchanges}
    for name, site in keys.sites.items():
        for exchange, slot in site.place.items():
            at: Location = ("sites", name, "place", exchange)
            if not 0 <= slot < site.slots:
                last = site.slots - 1
                yield Violation(
                    at,
                    f"there is no slot {slot} at `{name}`, whose `slots` is {site.slots}",
                    f"write 0 to {last}" if last else "add slots:, or take `place` out",
                    depends_on=("slots",),
                )
            if exchange not in exchanges:
                yield Violation(at, f"there is no exchange `{exchange}`", "name one of `exchanges`")
