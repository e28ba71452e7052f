"""I6: the ledger says what happened. Looked at when all has arrived and the nodes have ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from relay.ledger.rows import IDENTITY_BYTES, OUTCOME_MASK, REDELIVERED, LedgerRow, Outcome, Stage
from simulation.invariants import Broken


def check_ledger(
    site: str,
    cluster_id: str,
    rows: Iterable[LedgerRow],
    published: Mapping[str, int],
    surely_told: Mapping[str, int],
) -> None:
    """Raise Broken unless the site's rows tell of each message that it was packed, where it is the
    site's own, and that it was delivered, once but for flagged copies. A packer in doubt sends what
    has no identity again under another one, flagged: hence counts are bounded and not compared.

    `published`: by cluster ID of the origin, how many messages the mesh has brought;
    `surely_told`: of how many of them rows cannot be lost.
    """
    packed: set[tuple[str, bytes]] = set()
    delivered: dict[str, set[tuple[str, bytes]]] = defaultdict(set)
    unflagged: dict[str, Counter[bytes]] = defaultdict(Counter)
    for row in rows:
        for identity, outcome in _messages(row):
            what = outcome & OUTCOME_MASK
            if row.stage is Stage.PACKED and what == Outcome.SENT:
                packed.add((row.exchange, identity))
            elif row.stage is Stage.DELIVERED and what in (Outcome.DELIVERED, Outcome.OWN):
                delivered[row.origin].add((row.exchange, identity))
                # What its application published twice is in its own site's queues twice.
                if what == Outcome.DELIVERED and not outcome & REDELIVERED:
                    unflagged[row.origin][identity] += 1
    _no_fewer(f"packed at {site}", len(packed), surely_told[cluster_id])
    for origin, count in published.items():
        _no_fewer(f"of {origin} delivered at {site}", len(delivered[origin]), surely_told[origin])
        told = unflagged[origin].total()
        if told > count:
            raise Broken(f"I6 at {site}: {told} delivered unflagged of {origin}, of {count}")


def _no_fewer(what: str, told: int, count: int) -> None:
    if told < count:
        raise Broken(f"I6: the ledger tells of {told} messages {what}, there were {count}")


def _messages(row: LedgerRow) -> Iterable[tuple[bytes, int]]:
    for number, outcome in enumerate(row.outcomes):
        at = number * IDENTITY_BYTES
        yield row.identities[at : at + IDENTITY_BYTES], outcome
