"""What must hold of any mesh, whatever happened to it: used by every kind of test.

I1  no confirmed message lost          I3  nothing altered or invented
I2  no unflagged duplicate             I4  nothing returns to its origin
I5  order per origin and exchange (of first attempts: flagged repeats may come late)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple


class Arrived(NamedTuple):
    """A message as a consumer at some site got it."""

    origin: str
    number: int
    flagged: bool
    path: tuple[str, ...]
    """Cluster IDs; empty for one published at this very site."""
    body: bytes


class Broken(AssertionError):
    """An invariant does not hold; says which, where, and for which messages."""


def check_site(
    site: str,
    arrived: Iterable[Arrived],
    published: Mapping[str, Mapping[int, bytes]],
    *,
    ordered: bool = True,
    most_flags: int | None = None,
    destroyed: Collection[tuple[str, int]] = (),
    moved: Collection[tuple[str, int]] = (),
) -> Counter[str]:
    """Raise Broken unless what arrived at `site` is what was published everywhere, once.

    `published`: for each origin the bodies of confirmed messages by number. Returns counts of
    flagged copies by origin. `most_flags` bounds them over all origins. What a broker has
    `destroyed`, by origin and number, may be missing; what was `moved` may come behind later ones,
    its one unflagged copy behind flagged ones, and where flags may be at all once more unflagged:
    it is packed anew under another name, and what leaves a delivery in doubt goes by the name.
    """
    firsts: dict[str, list[int]] = defaultdict(list)
    seen: dict[str, Counter[int]] = defaultdict(Counter)
    flagged: Counter[str] = Counter()
    unflagged_repeats: dict[str, list[int]] = defaultdict(list)
    once_more: set[tuple[str, int]] = set()
    for message in arrived:
        origin, number = message.origin, message.number
        expected = published.get(origin, {}).get(number)
        if expected is None:
            raise Broken(f"I3 at {site}: {origin}/{number} was never confirmed to a publisher")
        if expected != message.body:
            raise Broken(f"I3 at {site}: {origin}/{number} has another body")
        if message.path and message.path[0] == site:
            raise Broken(f"I4 at {site}: {origin}/{number} came back over {message.path}")
        if len(set(message.path)) != len(message.path):
            raise Broken(f"{origin}/{number} at {site} went in a loop: {message.path}")
        if message.flagged:
            flagged[origin] += 1
        elif seen[origin][number] and ((origin, number) not in moved or number in firsts[origin]):
            if (origin, number) in moved and most_flags != 0 and (origin, number) not in once_more:
                once_more.add((origin, number))
            else:
                unflagged_repeats[origin].append(number)
        else:
            firsts[origin].append(number)
        seen[origin][number] += 1
    for origin, numbers in unflagged_repeats.items():
        raise Broken(f"I2 at {site}: unflagged duplicates from {origin}: {numbers[:10]}")
    for origin, bodies in published.items():
        missing = [
            number
            for number in sorted(set(bodies) - set(seen[origin]))
            if (origin, number) not in destroyed
        ]
        if missing:
            raise Broken(
                f"I1 at {site}: {len(missing)} of {len(bodies)} from {origin} are missing, "
                f"such as {missing[:10]}"
            )
        numbers = [one for one in firsts[origin] if (origin, one) not in moved]
        if ordered and numbers != sorted(numbers):
            at = next(i for i in range(1, len(numbers)) if numbers[i] < numbers[i - 1])
            raise Broken(f"I5 at {site}: from {origin}: {numbers[max(0, at - 3) : at + 3]}")
    if most_flags is not None and sum(flagged.values()) > most_flags:
        raise Broken(
            f"I2 at {site}: {sum(flagged.values())} flagged, at most {most_flags} expected"
        )
    return flagged
