"""What egress hands out again after a packer's end: which of it stands in the log already? Pure.

The broker returns everything unacknowledged to the front of the queue, in order and flagged
`redelivered`, packed or not. So what comes back begins somewhere in the flow's logged messages and
goes on to their end, and only behind that is anything that was never logged::

    logged        a b c d e f g          (the flow's last messages in the own log, oldest first)
    acknowledged  a b c                  (as far as the broker heard of it: not known exactly)
    comes back          d e f g h i      h, i: consumed, never logged

Where it begins is found by digest. Messages without an identity may repeat, so several beginnings
may fit; one that is ruled out here would lose a message, one that is guessed would repeat one.
Hence three verdicts: what stands in the log under every beginning that fits; what does under none;
and what is truly in doubt. `surely_unacked` (no ack was ever sent for the last so many) rules most
of them out: a packer holds back the last batch's ack for that reason.

A message with an expiration may be missing from what comes back: the broker let it expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16
PREFETCH = 2000
"""The most that a consumer of a quorum queue may hold unacknowledged in RabbitMQ 3.10, hence the
most that comes back, hence how many logged messages of a flow must be remembered."""

_JOIN_UP_TO = 64 * 1024


class Returned(IntEnum):
    """What is known of a message that egress hands out."""

    NEW = 0
    """Not in the log: pack it."""
    LOGGED = 1
    """In the log: acknowledge it, pack it no more."""
    MAYBE_LOGGED = 2
    """Its like is in the log, and whether it is that one cannot be told."""
    MAYBE_LOST = 3
    """The log has lost its tail: it may have been there, and neighbours may have it."""


class TailEntry(NamedTuple):
    """A logged message. `may_expire`: it had an expiration, so it need not come back."""

    digest: bytes
    may_expire: bool


def message_digest(routing_key: bytes, properties: bytes, body: bytes) -> bytes:
    """16 bytes over a message as it is logged (properties already cleaned), without identity."""
    head = b"%d %d " % (len(routing_key), len(properties))
    if len(body) <= _JOIN_UP_TO:
        return blake2b(
            b"".join((head, routing_key, properties, body)), digest_size=DIGEST_BYTES
        ).digest()
    digest = digest_start(routing_key, properties)
    digest.update(body)
    return digest.digest()


def digest_start(routing_key: bytes, properties: bytes) -> blake2b:
    """The same digest for a body that comes in pieces: update with each, in order."""
    head = b"%d %d " % (len(routing_key), len(properties))
    return blake2b(b"".join((head, routing_key, properties)), digest_size=DIGEST_BYTES)


class _Beginning:
    """One place in the tail where what comes back may begin, and how far it has been followed."""

    __slots__ = ("at", "logged")

    def __init__(self, at: int) -> None:
        self.at = at
        self.logged: int | None = None
        """How many of what came back are in the log, once the tail is used up."""


class ReturnedPrefix:
    """Compares what one flow's egress hands out with the end of what the log has of that flow.

    `take` in the order of delivery; verdicts come out in that order, late where later messages
    may still tell. Without `surely_unacked` the whole overlap stays in doubt until it has passed.
    """

    def __init__(
        self, tail: Sequence[TailEntry], surely_unacked: int = 0, *, log_lost_tail: bool = False
    ) -> None:
        self._tail = tail
        self._digests = b"".join(entry.digest for entry in tail)
        self._next_expiring = _next_expiring(tail)
        self._known = frozenset(entry.digest for entry in tail)
        self._new = Returned.MAYBE_LOST if log_lost_tail else Returned.NEW
        least = 0 if log_lost_tail else min(surely_unacked, len(tail))
        self._beginnings = [_Beginning(at) for at in range(len(tail) - least + 1)]
        self._taken: list[bytes] = []  # digests of what has come and has no verdict yet
        self._judged = 0
        self._patient = True
        self._scattered = False
        self._over = not tail and not log_lost_tail

    @property
    def over(self) -> bool:
        """Whether all that comes from now on is new, and need not be shown here."""
        return self._over and not self._taken

    @property
    def undecided(self) -> int:
        """Messages that were taken and wait for their verdict."""
        return len(self._taken)

    def take(self, digests: Sequence[bytes]) -> list[Returned]:
        """The next messages, all flagged `redelivered`. Verdicts for the oldest undecided ones."""
        if self._over:
            return [Returned.NEW] * len(digests)
        self._taken.extend(digests)
        if not self._scattered:
            self._follow(digests)
        return self._judge()

    def fresh(self) -> list[Returned]:
        """A message without the flag has come: all that was returned is here. Verdicts for the
        undecided ones; the fresh message itself is new, and so is all after it.
        """
        # A beginning from which more should have come back is refuted now.
        for beginning in self._beginnings:
            if beginning.logged is None and self._rest_may_be_missing(beginning.at):
                beginning.logged = self._judged + len(self._taken)
        self._keep([one for one in self._beginnings if one.logged is not None])
        self._patient = False
        verdicts = self._judge()
        self._over = True
        return verdicts

    def give_up_waiting(self) -> list[Returned]:
        """Nothing has come for a while, or no more can be held: verdicts for the undecided ones,
        and from now on at once.
        """
        self._patient = False
        return self._judge()

    def _follow(self, digests: Sequence[bytes]) -> None:
        came = b"".join(digests)
        before = self._judged + len(self._taken) - len(digests)
        alive = []
        for beginning in self._beginnings:
            if beginning.logged is not None or self._fits(beginning, digests, came, before):
                alive.append(beginning)
        self._keep(alive)

    def _fits(
        self, beginning: _Beginning, digests: Sequence[bytes], came: bytes, before: int
    ) -> bool:
        at = beginning.at
        size = len(self._tail)
        overlap = min(len(digests), size - at)
        if self._next_expiring[at] >= at + overlap:
            # Nothing that may be missing: one comparison of bytes.
            start = at * DIGEST_BYTES
            length = overlap * DIGEST_BYTES
            if self._digests[start : start + length] != came[:length]:
                return False
            beginning.at = at + overlap
            if beginning.at == size:
                beginning.logged = before + overlap
            return True
        for number, digest in enumerate(digests):
            while at < size and self._tail[at].digest != digest and self._tail[at].may_expire:
                at += 1
            if at == size:
                beginning.logged = before + number
                return True
            if self._tail[at].digest != digest:
                return False
            at += 1
        beginning.at = at
        if at == size:
            beginning.logged = before + len(digests)
        return True

    def _rest_may_be_missing(self, at: int) -> bool:
        return all(entry.may_expire for entry in self._tail[at:])

    def _keep(self, alive: list[_Beginning]) -> None:
        self._beginnings = alive
        if not alive:
            # What comes back is not what the log says it should be: somebody purged the queue or
            # took messages from it, or a policy lets all of them expire. Then each message is
            # judged alone, and never as surely logged.
            self._scattered = True

    def _judge(self) -> list[Returned]:
        if self._scattered:
            verdicts = [self._alone(digest) for digest in self._taken]
            self._taken.clear()
            self._judged += len(verdicts)
            return verdicts
        came = self._judged + len(self._taken)
        counts = [came if one.logged is None else one.logged for one in self._beginnings]
        surely, perhaps = min(counts), max(counts)
        used_up = all(one.logged is not None for one in self._beginnings)
        if used_up or not self._patient or surely == perhaps:
            decided = came
        else:
            decided = surely
        verdicts = []
        for number in range(self._judged, decided):
            if number < surely:
                verdicts.append(Returned.LOGGED)
            elif number < perhaps:
                verdicts.append(Returned.MAYBE_LOGGED)
            else:
                verdicts.append(self._new)
        del self._taken[: decided - self._judged]
        self._judged = max(self._judged, decided)
        if used_up and self._new is Returned.NEW:
            self._over = True
        return verdicts

    def _alone(self, digest: bytes) -> Returned:
        return Returned.MAYBE_LOGGED if digest in self._known else self._new


def _next_expiring(tail: Sequence[TailEntry]) -> list[int]:
    """For every place: the next one from it on whose message may be missing."""
    following = [len(tail)] * (len(tail) + 1)
    for at in range(len(tail) - 1, -1, -1):
        following[at] = at if tail[at].may_expire else following[at + 1]
    return following
