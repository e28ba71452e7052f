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

What was logged once more stands there without those between that name themselves, which were not:
the tail is not in egress's order any more, and no beginning need fit. Then nothing whose like is in
it is new for certain.

A message with an expiration may be missing from what comes back: the broker let it expire.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple, Protocol

from relay.bulk_amqp.content_header import canonical
from relay.bulk_amqp.errors import MalformedProperties

DIGEST_BYTES = 16
PREFETCH = 2000
"""The most that a consumer of a quorum queue may hold unacknowledged in RabbitMQ 3.10, hence the
most that comes back, hence how many logged messages of a flow must be remembered."""

_JOIN_UP_TO = 64 * 1024


class ReturnVerdict(IntEnum):
    """What is known of a message that egress hands out."""

    NEW = 0
    """Not in the log: pack it."""
    LOGGED = 1
    """In the log: acknowledge it, pack it no more."""
    MAYBE_LOGGED = 2
    """Its like is in the log, and whether it is that one cannot be told."""
    MAYBE_LOST = 3
    """The log lacks what it had: it may have been there, and neighbours may have it."""


class TailEntry(NamedTuple):
    """A logged message. `may_expire`: it had an expiration, so it need not come back. `doubtful`:
    it had come back and was logged once more. `is_named`: its identity was its own. `properties`:
    as they are logged.
    """

    digest: bytes
    may_expire: bool
    doubtful: bool = False
    is_named: bool = False
    properties: bytes = b""


def message_digest(routing_key: bytes, properties: bytes, body: bytes) -> bytes:
    """16 bytes over a message as it is logged (properties already cleaned), without identity.

    The order of its headers is not in it: a quorum queue sorts them when it hands out again.
    """
    properties = _comparable(properties)
    head = b"%d %d " % (len(routing_key), len(properties))
    if len(body) <= _JOIN_UP_TO:
        return blake2b(
            b"".join((head, routing_key, properties, body)), digest_size=DIGEST_BYTES
        ).digest()
    digest = blake2b(b"".join((head, routing_key, properties)), digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()


def digest_start(routing_key: bytes, properties: bytes) -> blake2b:
    """The same digest for a body that comes in pieces: update with each, in order."""
    properties = _comparable(properties)
    head = b"%d %d " % (len(routing_key), len(properties))
    return blake2b(b"".join((head, routing_key, properties)), digest_size=DIGEST_BYTES)


def _comparable(properties: bytes) -> bytes:
    try:
        return canonical(properties)
    except MalformedProperties:
        return properties  # then the broker could not sort them either


class ReturnedMessages(Protocol):
    """Compares what one flow's egress hands out with the end of what the log has of that flow.

    `take` in the order of delivery until a message comes that is not flagged `redelivered`, then
    `fresh`, and `late` for flagged messages behind that one. Verdicts of `take` come out in the
    order of delivery, held back where later messages may still tell.
    """

    @property
    def notes_fresh(self) -> bool:
        """True if every fresh message is to be shown to `note`, since egress may give a message
        back to the very consumer that has the message in hand.
        """
        ...

    def note(self, digest: bytes) -> None:
        """Take in a fresh message, which is packed."""
        ...

    @property
    def over(self) -> bool:
        """True once all that comes is new, as long as nothing comes `late`."""
        ...

    def take(self, digests: Sequence[bytes], properties: Sequence[bytes]) -> list[ReturnVerdict]:
        """The next messages, all flagged `redelivered`. Verdicts for the oldest undecided ones."""
        ...

    def fresh(self) -> list[ReturnVerdict]:
        """A message without the flag has come: all that is returned in order is here. Verdicts for
        the undecided ones; the fresh message itself is new, and so is all after it but for what
        comes `late`.
        """
        ...

    def give_up_waiting(self) -> list[ReturnVerdict]:
        """Nothing has come for a while, or no more can be held: verdicts for the undecided ones,
        and from now on at once.
        """
        ...

    def late(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        """Verdict of a message that is flagged, and came behind a fresh one: a cluster gave back
        late what a lost consumer had in hand, or somebody took the message from the queue and put
        it back.
        """
        ...


class ReturnedPrefix:
    """Of a flow that the log has in egress's order; see ReturnedMessages.

    Without `surely_unacked` the whole overlap stays in doubt until it has passed.
    """

    def __init__(
        self, tail: Sequence[TailEntry], surely_unacked: int = 0, *, log_lacks_some: bool = False
    ) -> None:
        size = len(tail)
        self._size = size
        self._places: dict[bytes, int] = {}
        self._expiring = 0
        for place, (digest, may_expire, *_) in enumerate(tail):
            self._places[digest] = self._places.get(digest, 0) | 1 << place
            self._expiring |= may_expire << place
        self._alike: Collection[bytes] = self._places
        self._is_in_order = not any(entry.doubtful for entry in tail)
        self._new = ReturnVerdict.MAYBE_LOST if log_lacks_some else ReturnVerdict.NEW
        least = 0 if log_lacks_some else min(surely_unacked, size)
        # Bit n: what comes next may be the tail's message n. All that fit are followed at once,
        # in a number: two thousand alike would else be four million steps.
        self._may_be_next = self._past_expired((1 << (size - least + 1)) - 1)
        self._taken: list[bytes] = []  # digests of what has come and has no verdict yet
        self._judged = 0
        self._fewest: int | None = None
        """The least number of what came that used up the tail under some beginning."""
        self._most = 0
        self._patient = True
        self._over = False
        self._note_used_up(0)
        self._over = not tail and not log_lacks_some

    @property
    def notes_fresh(self) -> bool:
        return False

    def note(self, digest: bytes) -> None:
        """A broker of one node gives nothing back to a consumer that lives."""

    @property
    def over(self) -> bool:
        return self._over and not self._taken

    @property
    def undecided(self) -> int:
        """Messages that were taken and wait for their verdict."""
        return len(self._taken)

    def take(
        self, digests: Sequence[bytes], properties: Sequence[bytes] = ()
    ) -> list[ReturnVerdict]:
        """The properties say nothing here that the digests do not."""
        if self._over:
            return [ReturnVerdict.NEW] * len(digests)
        came = self._judged + len(self._taken)
        self._taken.extend(digests)
        for number, digest in enumerate(digests, came + 1):
            fitting = self._may_be_next & self._places.get(digest, 0)
            self._may_be_next = self._past_expired(fitting << 1)
            self._note_used_up(number)
        return self._judge()

    def fresh(self) -> list[ReturnVerdict]:
        self._may_be_next = 0  # refuted: more should have come back
        verdicts = self._judge()
        self._over = True
        # Places are a bit each of a long number, and `late` is asked as long as the packer runs.
        self._alike, self._places = frozenset(self._places), {}
        return verdicts

    def give_up_waiting(self) -> list[ReturnVerdict]:
        self._patient = False
        return self._judge()

    def late(self, digest: bytes, properties: bytes = b"") -> ReturnVerdict:
        return self._alone(digest)

    def _past_expired(self, places: int) -> int:
        """These places, and those that come next if messages there have expired.

        Adding a place to the run of ones that it lies in carries to the run's end.
        """
        expiring = self._expiring
        return places | ((expiring + (places & expiring)) ^ expiring)

    def _note_used_up(self, came: int) -> None:
        """Under some beginning the tail is used up by the first `came` messages: they are in the
        log, what follows is not.
        """
        if self._may_be_next >> self._size & 1:
            self._may_be_next &= ~(1 << self._size)
            if self._fewest is None:
                self._fewest = came
            self._most = came

    def _judge(self) -> list[ReturnVerdict]:
        came = self._judged + len(self._taken)
        followed = self._may_be_next != 0
        if not followed and self._fewest is None:
            # What comes back is not what the log says it should be: somebody purged the queue or
            # took messages from it, or a policy lets all of them expire. Then each message is
            # judged alone, and never as surely logged.
            verdicts = [self._alone(digest) for digest in self._taken]
        else:
            surely = came if self._fewest is None else self._fewest
            perhaps = came if followed else self._most
            certain = not followed or not self._patient
            verdicts = [
                ReturnVerdict.LOGGED
                if number < surely
                else ReturnVerdict.MAYBE_LOGGED
                if number < perhaps
                else self._behind(digest)
                for number, digest in enumerate(
                    self._taken[: (came if certain else min(surely, came)) - self._judged],
                    self._judged,
                )
            ]
            self._over = not followed and self._new is ReturnVerdict.NEW and self._is_in_order
        del self._taken[: len(verdicts)]
        self._judged += len(verdicts)
        return verdicts

    def _behind(self, digest: bytes) -> ReturnVerdict:
        """Of what comes behind the tail under every beginning that fits."""
        return self._new if self._is_in_order else self._alone(digest)

    def _alone(self, digest: bytes) -> ReturnVerdict:
        return ReturnVerdict.MAYBE_LOGGED if digest in self._alike else self._new
