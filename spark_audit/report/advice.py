"""Meaning of each kind of finding for a morning reader, with the next step."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on a kind of finding. `repairs`: True if `isthmus repair` mends it."""

    meaning: str
    to_do: str
    repairs: bool = False


ADVICE: dict[str, Advice] = {
    "lost": Advice(
        "Published, and the site is done with what came after it: it will not come by itself.",
        "Send exactly these again, from any site's log that still has them. Doing it twice does no"
        " harm. Trace one to see how far it came.",
        repairs=True,
    ),
    "not received": Advice(
        "A publisher has its confirm, and no consumer at this site has a receipt of it.",
        "Where the ledger says delivered, look behind the queue: a consumer that acknowledged and"
        " did not log, a queue that was purged or dropped it. Where the ledger does not know it, it"
        " was never taken from the origin's exchange: see the bindings there, `isthmus doctor`.",
    ),
    "leaked duplicate": Advice(
        "Delivered again, and the repeat was not marked x-mesh-redelivered.",
        "Tell the applications that cannot take it twice. Trace one: a barrier forgets when its"
        " state folder is lost, and when something comes later than the outage window allows.",
    ),
    "consumed twice": Advice(
        "Consumers of one queue have two receipts of it, the second not marked as redelivered.",
        "If the ledger has no leaked duplicate of it, the site's own broker or the application did"
        " it: a consumer that failed between its work and its acknowledgement, say.",
    ),
    "altered": Advice(
        "Delivered with other content than its origin's barrier saw.",
        "Compare what the site has with what was published. Memory, a disk, or a program that"
        " publishes under an identity that was used before.",
    ),
    "unexpected": Advice(
        "Delivered at a site that was not to have it, back at its origin, or never packed by it.",
        "Trace one. What no origin packed was made by someone else: see who may write to the"
        " site's log and links, and change those passwords.",
    ),
    "consumed unpublished": Advice(
        "A consumer has a receipt of it, and no publisher has.",
        "Either a publisher does not write receipts, or it came from elsewhere: its message_id in"
        " the application's own log tells.",
    ),
    "reordered": Advice(
        "Delivered after a later message of its flow, without being marked.",
        "Tell the applications that rely on the order of this exchange, and report it: under"
        " `order: strict` no fault of a node or a link may do this.",
    ),
    "looped": Advice(
        "Its batch had been at a site before it came there again.",
        "Nothing was delivered twice by that alone, but a path was longer than it may be: report"
        " it, with the batch's name.",
    ),
    "late": Advice(
        "Delivered, over the exchange's `deadline`.",
        "See the slowest links below, and whether a site or link was held back or away then.",
    ),
}
"""Advice by kind, the worst first."""

_UNKNOWN = Advice("A finding of a later version.", "See the documentation of the audit.")


def advice(kind: str) -> Advice:
    return ADVICE.get(kind, _UNKNOWN)


def by_gravity(kinds: dict[str, int]) -> list[tuple[str, int]]:
    """Return kinds with findings, the worst first."""
    order = list(ADVICE)
    return sorted(
        ((kind, count) for kind, count in kinds.items() if count),
        key=lambda one: (order.index(one[0]) if one[0] in order else len(order), one[0]),
    )


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands that a report recommends. `ledger`: set if not the usual folder."""

    mesh_file: str = "mesh.yaml"
    out: str = "DIR"
    ledger: str | None = None

    def repair(self) -> str:
        return shlex.join(["isthmus", "repair", self.mesh_file, "--audit", self.out])

    def trace(self, identity: str) -> str:
        more = ["--ledger", self.ledger] if self.ledger else []
        return shlex.join(["isthmus", "trace", self.mesh_file, identity, *more])
