"""Whether what was promised held, from what applications were told and what their queues had.

Pure. `simulation/invariants.py` says what must hold of any queue; here stands what a run of faults
excuses, by name and number, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from relay.state.flow_state import ANNOUNCED_AT_MOST
from simulation.invariants import Arrived, InvariantBroken, check_site
from tests.chaos.schedule import KINDS, Fault
from tests.journeys.load import home

AMID = 300
"""Messages. Two queues are asked one after the other: so many may have come to one of them and be
on their way to the other."""


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one stream's messages at its publisher, by number."""

    origin: str
    confirmed: Mapping[int, bytes]
    unsure: Mapping[int, bytes]
    """Refused (one of the queues did, others may have them), or never answered."""
    refused: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class SiteBooks:
    """What came to a site's two queues."""

    site: str
    """Cluster ID."""
    witness: Sequence[Arrived]
    victim: Sequence[Arrived]
    struck: Sequence[tuple[int, int]] = ()
    """How many messages the witness had had, before and after each loss of all the victim had."""


@dataclass(slots=True)
class Account:
    """What is found; nothing in `broken` if every promise held."""

    broken: list[str] = field(default_factory=list)
    flagged: dict[str, int] = field(default_factory=dict)
    """By site, at its witness."""
    destroyed: dict[str, int] = field(default_factory=dict)
    """By site: messages that its victim lost when purged or deleted, or that it was not there
    for."""

    def look(self, check: Callable[[], None]) -> None:
        """Note what a check finds."""
        try:
            check()
        except AssertionError as error:
            self.broken.append(str(error))


def account(
    books: Iterable[SiteBooks], published: Sequence[Published], faults: Sequence[Fault]
) -> Account:
    """Of a run that has drained."""
    found = Account()
    for one in books:
        found.look(partial(check_witness, one, published, faults, found))
        found.look(partial(check_victim, one, found))
    return found


def check_witness(
    books: SiteBooks, published: Sequence[Published], faults: Sequence[Fault], found: Account
) -> None:
    """Raise InvariantBroken unless the queue that no fault struck has all that was confirmed
    elsewhere, once but for flagged copies, unaltered and in order; and no more flags than doubts.
    """
    arrived = _from_others(books.site, books.witness)
    got = {(message.origin, message.number) for message in arrived}
    sent = {
        stream.origin: {
            **stream.confirmed,
            **{n: body for n, body in stream.unsure.items() if (stream.origin, n) in got},
        }
        for stream in published
        if home(stream.origin) != books.site
    }
    flags = check_site(books.site, arrived, sent)
    found.flagged[books.site] = flags.total()
    for origin in {home(stream) for stream in flags}:
        count = sum(n for stream, n in flags.items() if home(stream) == origin)
        most = most_flags(books.site, origin, faults)
        if most is not None and count > most:
            raise InvariantBroken(
                f"I2 at {books.site}: {count} flagged from {origin}, at most {most}"
            )


def most_flags(site: str, origin: str, faults: Sequence[Fault]) -> int | None:
    """How many copies of a flow may be in doubt; None where a full queue has them tried again and
    again, as often as it takes."""
    if any(fault.kind == "queue-full" and fault.where == site for fault in faults):
        return None
    return ANNOUNCED_AT_MOST * sum(
        (KINDS[fault.kind].on == "mesh") + (fault.where in (site, origin))
        for fault in faults
        if KINDS[fault.kind].doubt
    )


def check_victim(books: SiteBooks, found: Account) -> None:
    """Raise InvariantBroken unless the queue that faults struck has what its witness has, but for
    what came before it was last purged or deleted, or while it was away; and nothing of that.
    """
    witness = _from_others(books.site, books.witness)
    bodies: dict[str, dict[int, bytes]] = {}
    for message in witness:
        bodies.setdefault(message.origin, {}).setdefault(message.number, message.body)
    # Its own site's messages come to both too, but a full queue refuses these to their publisher.
    victim = _from_others(books.site, books.victim)
    before, after = books.struck[-1] if books.struck else (0, 0)
    lost = {(m.origin, m.number) for m in _from_others(books.site, books.witness[: after + AMID])}
    excused = lost if books.struck else set()
    check_site(f"{books.site}, struck queue", victim, bodies, destroyed=excused)
    has = {(message.origin, message.number) for message in victim}
    if books.struck:
        gone = _from_others(books.site, books.witness[: max(before - AMID, 0)])
        first = {(message.origin, message.number) for message in gone}
        back = [m for m in victim if not m.flagged and (m.origin, m.number) in first]
        if back:
            raise InvariantBroken(
                f"I2 at {books.site}: {len(back)} came again to a queue that was emptied"
            )
    found.destroyed[books.site] = len({(m.origin, m.number) for m in witness} - has)


def _from_others(site: str, arrived: Sequence[Arrived]) -> list[Arrived]:
    return [message for message in arrived if home(message.origin) != site]
