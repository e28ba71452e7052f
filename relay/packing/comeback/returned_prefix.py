"""Messages that egress hands out again after a packer's end: which are in the log already? Pure.

The broker returns everything unacknowledged to the front of the queue, in order and flagged
`redelivered`, packed or not. So the returned messages begin somewhere in the flow's logged messages
and continue to the end of these; only behind are messages that were never logged::

    logged        a b c d e f g          (the flow's last messages in the own log, oldest first)
    acknowledged  a b c                  (as far as the broker heard: not known exactly)
    comes back          d e f g h i      (h, i: consumed, never logged)

Digests find the beginning. Messages without an identity may repeat, so several beginnings may fit;
ruling out the right one would lose a message, guessing would repeat one. Hence three verdicts:
logged under every beginning that fits, logged under none, and truly in doubt. `surely_unacked`
(number of last messages for which no acknowledgement was ever sent) rules most beginnings out: a
packer holds back the last batch's acknowledgement for that reason.

Messages that were logged once more stand in the log without the named messages between, which were
dropped: the tail is then not in egress's order, and no beginning need fit. Then no message with its
like in the tail is certainly new.

A message with an expiration may be missing among the returned messages: the broker let it expire.
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
"""Most messages that a consumer of a quorum queue may hold unacknowledged in RabbitMQ 3.10, hence
the most that come back, and the number of a flow's logged messages to remember."""

_JOIN_UP_TO = 64 * 1024


class ReturnVerdict(IntEnum):
    """Knowledge about a message that egress hands out."""

    NEW = 0
    """Message that is not in the log: pack it."""
    LOGGED = 1
    """Message that is in the log: acknowledge it, do not pack it again."""
    MAYBE_LOGGED = 2
    """A like message is in the log, perhaps this very message."""
    MAYBE_LOST = 3
    """The log lost messages: this message may have been there, and neighbours may have a copy."""


class TailEntry(NamedTuple):
    """Logged message. `may_expire`: had an expiration, so need not come back. `doubtful`: had come
    back and was logged once more. `is_named`: carried an identity of its own. `properties`: as
    logged.
    """

    digest: bytes
    may_expire: bool
    doubtful: bool = False
    is_named: bool = False
    properties: bytes = b""


def message_digest(routing_key: bytes, properties: bytes, body: bytes) -> bytes:
    """Digest (16 bytes) of a message as logged, with cleaned properties and without the identity.

    The order of headers does not matter: a quorum queue sorts them when handing out again.
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
    """Begin the same digest for a body that comes in pieces: update with each, in order."""
    properties = _comparable(properties)
    head = b"%d %d " % (len(routing_key), len(properties))
    return blake2b(b"".join((head, routing_key, properties)), digest_size=DIGEST_BYTES)


def _comparable(properties: bytes) -> bytes:
    try:
        return canonical(properties)
    except MalformedProperties:
        return properties  # then the broker could not sort them either


class ReturnedMessages(Protocol):
    """Comparison of a flow's messages from egress with the end of the flow in the log.

    `take` in the order of delivery until a message comes that is not flagged `redelivered`, then
    `fresh`, and `late` for flagged messages behind. Verdicts of `take` come out in the order of
    delivery, held back while later messages may still decide.
    """

    @property
    def notes_fresh(self) -> bool:
        """True if `note` needs every fresh message, since egress may give a message back to the
        very consumer that has the message in hand.
        """
        ...

    def note(self, digest: bytes) -> None:
        """Take in a fresh message, which is packed."""
        ...

    @property
    def over(self) -> bool:
        """True once all further messages are new, but for any that come `late`."""
        ...

    def take(self, digests: Sequence[bytes], properties: Sequence[bytes]) -> list[ReturnVerdict]:
        """Take the next messages, all flagged; return verdicts for the oldest undecided."""
        ...

    def fresh(self) -> list[ReturnVerdict]:
        """Note a message without the flag: everything that returns in order is here. Return
        verdicts for the undecided messages; the fresh message itself is new, and so are all behind
        but any `late` ones.
        """
        ...

    def give_up_waiting(self) -> list[ReturnVerdict]:
        """Return verdicts for the undecided messages, and from now on at once, as nothing has come
        for a while, or no more can be held.
        """
        ...

    def late(self, digest: bytes, properties: bytes) -> ReturnVerdict:
        """Return the verdict for a flagged message behind a fresh one: a cluster gave back late
        what a lost consumer had in hand, or somebody took the message from the queue and put it
        back.
        """
        ...


class ReturnedPrefix:
    """Comparison for a flow that the log has in egress's order; see ReturnedMessages.

    Without `surely_unacked` the whole overlap stays in doubt until passed.
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
        # Bit n: the next message may be the tail's message n. All beginnings are followed at once,
        # in a number: two thousand like messages would otherwise be four million steps.
        self._may_be_next = self._past_expired((1 << (size - least + 1)) - 1)
        self._taken: list[bytes] = []  # digests of messages without a verdict
        self._judged = 0
        self._fewest: int | None = None
        """Least number of returned messages that used up the tail under some beginning."""
        self._most = 0
        self._patient = True
        self._over = False
        self._note_used_up(0)
        self._over = not tail and not log_lacks_some

    @property
    def notes_fresh(self) -> bool:
        return False

    def note(self, digest: bytes) -> None:
        """Ignore the message: a broker of one node gives nothing back to a living consumer."""

    @property
    def over(self) -> bool:
        return self._over and not self._taken

    @property
    def undecided(self) -> int:
        """Number of messages that wait for their verdict."""
        return len(self._taken)

    def take(
        self, digests: Sequence[bytes], properties: Sequence[bytes] = ()
    ) -> list[ReturnVerdict]:
        """Compare by digests alone, which cover the properties."""
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
        self._may_be_next = 0  # no beginning fits: more should have come back
        verdicts = self._judge()
        self._over = True
        # Places are bits of a long number; `late` needs no places, for as long as the packer runs.
        self._alike, self._places = frozenset(self._places), {}
        return verdicts

    def give_up_waiting(self) -> list[ReturnVerdict]:
        self._patient = False
        return self._judge()

    def late(self, digest: bytes, properties: bytes = b"") -> ReturnVerdict:
        return self._alone(digest)

    def _past_expired(self, places: int) -> int:
        """Return these places, and the next places of messages that may have expired.

        Adding a place to the run of ones around the place carries to the run's end.
        """
        expiring = self._expiring
        return places | ((expiring + (places & expiring)) ^ expiring)

    def _note_used_up(self, came: int) -> None:
        """Note that under some beginning the first `came` messages use up the tail: these are in
        the log, later ones are not.
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
            # The returned messages do not fit the log: somebody purged the queue or took messages
            # away, or a policy lets all of them expire. Then each message is judged alone, and
            # never as surely logged.
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
        """Verdict of a message behind the tail under every beginning that fits."""
        return self._new if self._is_in_order else self._alone(digest)

    def _alone(self, digest: bytes) -> ReturnVerdict:
        return ReturnVerdict.MAYBE_LOGGED if digest in self._alike else self._new
