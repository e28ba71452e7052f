"""Invariants of any mesh, whatever happened to it; used by every kind of test.

I1  no confirmed message lost          I4  nothing returns to its origin
I2  no unflagged duplicate             I5  order per origin and exchange (of first
I3  nothing altered or invented            attempts: flagged repeats may come late)
I6  the ledger records every packing and delivery
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from relay.ledger.rows import IDENTITY_BYTES, OUTCOME_MASK, REDELIVERED, LedgerRow, Outcome, Stage


class Arrived(NamedTuple):
    """Message as a consumer at some site got it."""

    origin: str
    number: int
    flagged: bool
    path: tuple[str, ...]
    """Cluster IDs; empty for a message published at this very site."""
    body: bytes


class InvariantBroken(AssertionError):
    """Broken invariant: which, where, and for which messages."""


def check_site(
    site: str,
    arrived: Iterable[Arrived],
    published: Mapping[str, Mapping[int, bytes]],
    *,
    ordered: bool = True,
    most_flags: int | None = None,
    destroyed: Collection[tuple[str, int]] = (),
    moved: Collection[tuple[str, int]] = (),
    in_turns: bool = True,
) -> Counter[str]:
    """Raise InvariantBroken unless `site` got every published message once; return flagged copies
    by origin.

    `published` has, for each origin, the bodies of confirmed messages by number. `most_flags`
    bounds flagged copies over all origins. Messages in `destroyed`, by origin and number, may be
    missing. A message in `moved` may come behind later ones, its one unflagged copy behind flagged
    ones, and, where flags may be at all, once more unflagged: it is packed anew under another batch
    name, and a delivery in doubt is recognised by the name.

    Without `in_turns` two nodes may have delivered at once: of each message's copies still at most
    one is unflagged, but that one may come behind flagged ones.
    """
    # By dictionaries, as sets that keep the order: journeys check a hundred thousand messages.
    firsts: dict[str, dict[int, None]] = defaultdict(dict)
    seen: dict[str, Counter[int]] = defaultdict(Counter)
    flagged: Counter[str] = Counter()
    unflagged_repeats: dict[str, list[int]] = defaultdict(list)
    once_more: set[tuple[str, int]] = set()
    for message in arrived:
        origin, number = message.origin, message.number
        expected = published.get(origin, {}).get(number)
        if expected is None:
            raise InvariantBroken(
                f"I3 at {site}: {origin}/{number} was never confirmed to a publisher"
            )
        if expected != message.body:
            raise InvariantBroken(f"I3 at {site}: {origin}/{number} has another body")
        if message.path and message.path[0] == site:
            raise InvariantBroken(f"I4 at {site}: {origin}/{number} came back over {message.path}")
        if len(set(message.path)) != len(message.path):
            raise InvariantBroken(f"{origin}/{number} at {site} went in a loop: {message.path}")
        if message.flagged:
            flagged[origin] += 1
        elif number in firsts[origin] or (
            seen[origin][number] and in_turns and (origin, number) not in moved
        ):
            if (origin, number) in moved and most_flags != 0 and (origin, number) not in once_more:
                once_more.add((origin, number))
            else:
                unflagged_repeats[origin].append(number)
        else:
            firsts[origin][number] = None
        seen[origin][number] += 1
    for origin, numbers in unflagged_repeats.items():
        raise InvariantBroken(f"I2 at {site}: unflagged duplicates from {origin}: {numbers[:10]}")
    for origin, bodies in published.items():
        missing = [
            number
            for number in sorted(set(bodies) - set(seen[origin]))
            if (origin, number) not in destroyed
        ]
        if missing:
            raise InvariantBroken(
                f"I1 at {site}: {len(missing)} of {len(bodies)} from {origin} are missing, "
                f"such as {missing[:10]}"
            )
        if ordered:
            check_order(site, origin, firsts[origin], moved)
    if most_flags is not None and sum(flagged.values()) > most_flags:
        raise InvariantBroken(
            f"I2 at {site}: {sum(flagged.values())} flagged, at most {most_flags} expected"
        )
    return flagged


def check_order(
    site: str, origin: str, numbers: Iterable[int], overtaken: Collection[tuple[str, int]]
) -> None:
    """Raise InvariantBroken unless messages of an origin came in this order, those in `overtaken`
    left out.
    """
    kept = [number for number in numbers if (origin, number) not in overtaken]
    for at in range(1, len(kept)):
        if kept[at] < kept[at - 1]:
            raise InvariantBroken(f"I5 at {site}: from {origin}: {kept[max(0, at - 3) : at + 3]}")


def check_ledger(
    site: str,
    cluster_id: str,
    rows: Iterable[LedgerRow],
    published: Mapping[str, int],
    surely_recorded: Mapping[str, int],
    once_more: Mapping[str, int] | None = None,
) -> None:
    """Raise InvariantBroken unless the site's ledger records each message of its own as packed, and
    each message of the mesh as delivered, once but for flagged copies.

    A packer in doubt sends a message without identity again under another one, flagged: hence
    counts are bounded, not compared. `published`: messages of the mesh by the origin's cluster ID;
    `surely_recorded`: how many of them have rows that cannot be lost; `once_more`: how many came to
    the site once more without a flag, as `check_site` lets them.
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
                # A message published twice is in its own site's queues twice.
                if what == Outcome.DELIVERED and not outcome & REDELIVERED:
                    unflagged[row.origin][identity] += 1
    _no_fewer(f"packed at {site}", len(packed), surely_recorded[cluster_id])
    for origin, count in published.items():
        _no_fewer(
            f"of {origin} delivered at {site}", len(delivered[origin]), surely_recorded[origin]
        )
        recorded = unflagged[origin].total()
        most = count + (0 if once_more is None else once_more.get(origin, 0))
        if recorded > most:
            raise InvariantBroken(
                f"I6 at {site}: {recorded} delivered unflagged of {origin}, of {most}"
            )


def _no_fewer(what: str, recorded: int, count: int) -> None:
    if recorded < count:
        raise InvariantBroken(
            f"I6: the ledger tells of {recorded} messages {what}, there were {count}"
        )


def _messages(row: LedgerRow) -> Iterable[tuple[bytes, int]]:
    for number, outcome in enumerate(row.outcomes):
        at = number * IDENTITY_BYTES
        yield row.identities[at : at + IDENTITY_BYTES], outcome
