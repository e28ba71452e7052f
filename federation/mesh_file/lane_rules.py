"""What exchanges may say of lanes, and the mesh and its links of rates."""

from __future__ import annotations

from collections.abc import Iterator

from federation.lanes import NORMAL
from federation.mesh_file.document import MeshKeys
from federation.mesh_file.nearest import nearest
from federation.mesh_file.problems import Severity
from federation.mesh_file.violation import Violation


def lane_violations(keys: MeshKeys) -> Iterator[Violation]:
    """All that is wrong with them."""
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
        meant = nearest(exchange.lane, lanes)
        mend = f"did you mean `{meant}`?" if meant else f"the lanes are {', '.join(lanes)}"
        yield Violation(at, f"there is no lane `{exchange.lane}`", mend)
    limits = [keys.max_rate, *(one.max_rate for one in keys.links)]
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
