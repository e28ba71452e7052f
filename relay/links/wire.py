"""Frames between the two ends of a link, big-endian, versions 1 to 3.

::

    every frame    1  version
                   1  kind
                   4  check: CRC-32 of version and kind and of all from the nonce on; of a BATCH,
                      to its number, then of the path (the batch's digest covers the rest of it)
                   8  nonce: the sender's, new for each session
                   8  run: the receiver's, new for each connection to its log
    sender to receiver
      ASK          8  sender's wall clock, ms
                      the offer
      BATCH        8  number in the session, dense, from 1
                   1  flags: 1 = the receiver has called this batch bad in an earlier session
                             2 = in version 2: MEMBERS of its revision went before it
                      the batch
      PULSE        8  the last number sent
                   8  sender's wall clock, ms
                   8  receiver's clock minus the sender's, ms, signed
                   4  round trip, ms; all ones: neither is measured yet
      MEMBERS      1  in version 2: length, a revision of the mesh
                      the sites of the revision (`encode_members`)
    receiver to sender
      HELLO           (nonce zero) "I am here": a sender that waits may ask at once
                      the offer
      WELCOME      8  receiver's wall clock, ms
                   8  echo: the wall clock in the ASK
                   1  length, the receiver's log ID
                   1  in version 2: length, the offer
                      the receiver's logged names (`NameSet.encode`)
      ACK          8  all up to this number are in the receiver's log, or refused
                   8  all up to this number have arrived
                   8  receiver's wall clock, ms
                   8  echo: the wall clock of the last PULSE if the ACK answers it, else 0
      REFUSED      8  number       the reason, UTF-8
      HAVE         1  flags, in version 3; bit 0: by its mesh's group, just now
                      names that the receiver's log has got otherwise since the last such HAVE
                      of the session (`NameSet.encode`)
      OVER         1  cause        8  number        the reason, UTF-8

    the offer      1  oldest, 1 newest version that the end speaks
                   1  oldest, 1 newest batch format that it reads     later versions may add to it

An ACK is the receiver's keep-alive too, so the next ACK makes up for a lost one.

HELLO and ASK are always of the oldest version that their end speaks, and an end that does not know
of the offer ignores it: without an offer, both versions are 1. The receiver answers the ASK in the
newest version that both speak, which is the session's. If there is none, it sends OVER, which, like
the head, is the same in every version to come: both ends can always learn why they cannot talk.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias
from zlib import crc32

from relay.batches.known_formats import FIRST, KNOWN, Formats

NONCE_BYTES = 8
RUN_BYTES = 8
NO_NONCE = bytes(NONCE_BYTES)
NO_RUN = bytes(RUN_BYTES)
HEAD_BYTES = 22
"""Bytes that hold kind, nonce and run of a frame; as many as `read_nonce` needs."""

_HEAD = struct.Struct(">BBI8s8s")
_ASK = struct.Struct(">Q")
_BATCH = struct.Struct(">QB")
_PULSE = struct.Struct(">QQqI")
_WELCOME = struct.Struct(">QQB")
_ACK = struct.Struct(">QQQQ")
_REFUSED = struct.Struct(">Q")
_OVER = struct.Struct(">BQ")
_OFFER = struct.Struct(">BBBB")
_WITH_OFFER = 2
WITH_MEMBERS = 2
"""First version that has MEMBERS."""
WITH_HAVE = 3
"""First version that has HAVE."""
_CHECKED_FROM = 6
_NOT_MEASURED = 0xFFFFFFFF
_SUSPECT = 1
_BY_GROUP = 1
_MEMBERS_SENT = 2
_BATCH_STARTS = HEAD_BYTES + _BATCH.size


class FrameKind(IntEnum):
    ASK = 1
    BATCH = 2
    PULSE = 3
    MEMBERS = 4
    HELLO = 16
    WELCOME = 17
    ACK = 18
    REFUSED = 19
    OVER = 20
    HAVE = 21


class Cause(IntEnum):
    """Cause for which a receiver ends a session."""

    OTHER = 0
    """Cause that this node does not know: the reason has to do."""
    GAP = 1
    """A number is missing: lost on the way."""
    BAD_BATCH = 2
    """The batch with the given number is damaged, or not the sender's to send."""
    NEWER_FORMAT = 3
    """The batch with the given number is of a format that the receiver does not know yet."""
    LOG_AWAY = 4
    """The receiver's connection to its log is gone; a new run will begin."""
    UNKNOWN_SESSION = 5
    """The receiver knows no session of the nonce and run: it has started anew."""
    CLOSING = 6
    """The receiver stops."""
    NO_COMMON_VERSION = 7
    """The two ends speak no version in common: no session begins."""
    ORIGIN_UNKNOWN = 8
    """The receiver's mesh file cannot decide if the batch with the given number is its origin's."""


_CAUSES = frozenset(Cause)


MAX_TEXT_BYTES = 2048
"""Longest reason, which goes into logs and status: more text of a neighbour is cut off."""


class BadFrame(Exception):
    """Bytes that are no valid frame. `reason` is short, fit to count by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OtherVersion(BadFrame):
    """Frame of a version that this end does not speak, from an older or newer end."""

    def __init__(self, version: int, kind: int, nonce: bytes) -> None:
        super().__init__("other version")
        self.version = version
        self.kind = kind
        self.nonce = nonce


class Ask(NamedTuple):
    nonce: bytes
    run: bytes
    wall_ms: int
    offer: Formats = FIRST


class BatchFrame(NamedTuple):
    nonce: bytes
    run: bytes
    number: int
    suspect: bool
    batch: memoryview
    check: int
    """Check to hand to `path_matches` once the path was read."""
    members_sent: bool = False
    """True if a MEMBERS of the batch's revision went before it."""


class Measured(NamedTuple):
    """Receiver's clock minus the sender's, and the round trip, as the sender measured."""

    ahead_ms: int
    round_trip_ms: int


class Pulse(NamedTuple):
    nonce: bytes
    run: bytes
    number: int
    wall_ms: int
    measured: Measured | None


class Members(NamedTuple):
    """Sites of a revision, sent before the first batch of a session with the revision."""

    nonce: bytes
    run: bytes
    revision: str
    sites: bytes


class Hello(NamedTuple):
    nonce: bytes
    run: bytes
    offer: Formats = FIRST


class Welcome(NamedTuple):
    nonce: bytes
    run: bytes
    wall_ms: int
    echo_ms: int
    log_id: bytes
    logged: bytes
    offer: Formats = FIRST
    version: int = 1


class Ack(NamedTuple):
    nonce: bytes
    run: bytes
    logged: int
    arrived: int
    wall_ms: int
    echo_ms: int


class Refused(NamedTuple):
    nonce: bytes
    run: bytes
    number: int
    reason: str


class Have(NamedTuple):
    """Names that the receiver's log has got otherwise, encoded as a NameSet."""

    nonce: bytes
    run: bytes
    by_group: bool
    """True if its mesh's group has just brought them: what comes next may come so as well."""
    names: bytes


class Over(NamedTuple):
    nonce: bytes
    run: bytes
    cause: Cause
    number: int
    reason: str


class Send(NamedTuple):
    """Action of sender and receiver: hand the frame to the transport."""

    frame: bytes


ToReceiver: TypeAlias = Ask | BatchFrame | Pulse | Members
ToSender: TypeAlias = Hello | Welcome | Ack | Refused | Have | Over
Frame: TypeAlias = ToReceiver | ToSender


def encode_ask(nonce: bytes, wall_ms: int, offer: Formats = KNOWN) -> bytes:
    body = _ASK.pack(wall_ms) + _offer(offer)
    return _frame(offer.oldest_link, FrameKind.ASK, nonce, NO_RUN, body)


def encode_batch_frame(
    version: int,
    nonce: bytes,
    run: bytes,
    number: int,
    batch: bytes,
    path: Sequence[str],
    suspect: bool,
    members_sent: bool = False,
) -> bytes:
    """Encode a BATCH frame. `path` is the batch's own: the only part left open by its digest."""
    flags = (_SUSPECT if suspect else 0) | (_MEMBERS_SENT if members_sent else 0)
    fixed = nonce + run + _BATCH.pack(number, flags)
    start = bytes((version, FrameKind.BATCH))
    check = crc32("\0".join(path).encode(), crc32(fixed, crc32(start)))
    return b"".join((start, check.to_bytes(4, "big"), fixed, batch))


def path_matches(frame: bytes, check: int, path: Sequence[str]) -> bool:
    """Return True if a BATCH frame's fixed part and its batch's path are as they were sent."""
    fixed = crc32(frame[_CHECKED_FROM:_BATCH_STARTS], crc32(frame[:2]))
    return crc32("\0".join(path).encode(), fixed) == check


def encode_pulse(
    version: int, nonce: bytes, run: bytes, number: int, wall_ms: int, measured: Measured | None
) -> bytes:
    ahead, round_trip = measured or (0, _NOT_MEASURED)
    body = _PULSE.pack(number, wall_ms, ahead, min(round_trip, _NOT_MEASURED))
    return _frame(version, FrameKind.PULSE, nonce, run, body)


def encode_members_frame(
    version: int, nonce: bytes, run: bytes, revision: str, sites: bytes
) -> bytes:
    name = revision.encode()
    return _frame(version, FrameKind.MEMBERS, nonce, run, bytes((len(name),)) + name + sites)


def encode_hello(run: bytes, offer: Formats = KNOWN) -> bytes:
    return _frame(offer.oldest_link, FrameKind.HELLO, NO_NONCE, run, _offer(offer))


def encode_welcome(welcome: Welcome) -> bytes:
    fixed = _WELCOME.pack(welcome.wall_ms, welcome.echo_ms, len(welcome.log_id))
    offer = b""
    if welcome.version >= _WITH_OFFER:
        offer = _offer(welcome.offer)
        offer = bytes([len(offer)]) + offer
    body = b"".join((fixed, welcome.log_id, offer, welcome.logged))
    return _frame(welcome.version, FrameKind.WELCOME, welcome.nonce, welcome.run, body)


def encode_ack(version: int, ack: Ack) -> bytes:
    return _frame(version, FrameKind.ACK, ack.nonce, ack.run, _ACK.pack(*ack[2:]))


def encode_refused(version: int, nonce: bytes, run: bytes, number: int, reason: str) -> bytes:
    body = _REFUSED.pack(number) + reason.encode()
    return _frame(version, FrameKind.REFUSED, nonce, run, body)


def encode_have(version: int, have: Have) -> bytes:
    body = bytes([_BY_GROUP * have.by_group]) + have.names
    return _frame(version, FrameKind.HAVE, have.nonce, have.run, body)


def encode_over(
    version: int, nonce: bytes, run: bytes, cause: Cause, number: int, reason: str
) -> bytes:
    body = _OVER.pack(cause, number) + reason.encode()
    return _frame(version, FrameKind.OVER, nonce, run, body)


def read_nonce(frame: bytes) -> bytes:
    """Return the nonce of a frame, of which the first `HEAD_BYTES` suffice."""
    if len(frame) < HEAD_BYTES:
        raise BadFrame("too short")
    return bytes(frame[_CHECKED_FROM : _CHECKED_FROM + NONCE_BYTES])


def decode_frame(frame: bytes, spoken: Formats = KNOWN) -> Frame:
    """Decode and check a frame; BATCH still needs `path_matches`. Raises BadFrame, OtherVersion."""
    if len(frame) < HEAD_BYTES:
        raise BadFrame("too short")
    version, kind, check, nonce, run = _HEAD.unpack_from(frame)
    if not spoken.oldest_link <= version <= spoken.newest_link and kind != FrameKind.OVER:
        raise OtherVersion(version, kind, nonce)
    try:
        if kind == FrameKind.BATCH:
            number, flags = _BATCH.unpack_from(frame, HEAD_BYTES)
            batch = memoryview(frame)[_BATCH_STARTS:]
            suspect, members_sent = flags & _SUSPECT != 0, flags & _MEMBERS_SENT != 0
            return BatchFrame(nonce, run, number, suspect, batch, check, members_sent)
        if crc32(memoryview(frame)[_CHECKED_FROM:], crc32(frame[:2])) != check:
            raise BadFrame("damaged")
        return _decode_checked(version, kind, nonce, run, frame)
    except (struct.error, IndexError, ValueError) as error:
        raise BadFrame("malformed") from error


def _decode_checked(version: int, kind: int, nonce: bytes, run: bytes, frame: bytes) -> Frame:
    if kind == FrameKind.ACK:
        return Ack(nonce, run, *_ACK.unpack_from(frame, HEAD_BYTES))
    if kind == FrameKind.PULSE:
        number, wall_ms, ahead, round_trip = _PULSE.unpack_from(frame, HEAD_BYTES)
        measured = None if round_trip == _NOT_MEASURED else Measured(ahead, round_trip)
        return Pulse(nonce, run, number, wall_ms, measured)
    if kind == FrameKind.ASK:
        (wall_ms,) = _ASK.unpack_from(frame, HEAD_BYTES)
        return Ask(nonce, run, wall_ms, _read_offer(frame, HEAD_BYTES + _ASK.size))
    if kind == FrameKind.MEMBERS:
        at = HEAD_BYTES + 1
        end = at + frame[HEAD_BYTES]
        return Members(nonce, run, _text(frame[:end], at), frame[end:])
    if kind == FrameKind.HELLO:
        return Hello(nonce, run, _read_offer(frame, HEAD_BYTES))
    if kind == FrameKind.WELCOME:
        wall_ms, echo_ms, length = _WELCOME.unpack_from(frame, HEAD_BYTES)
        at = HEAD_BYTES + _WELCOME.size
        log_id = frame[at : at + length]
        at += length
        offer = FIRST
        if version >= _WITH_OFFER:
            offer = _read_offer(frame, at + 1)
            at += 1 + frame[at]
        return Welcome(nonce, run, wall_ms, echo_ms, log_id, frame[at:], offer, version)
    if kind == FrameKind.REFUSED:
        (number,) = _REFUSED.unpack_from(frame, HEAD_BYTES)
        return Refused(nonce, run, number, _text(frame, HEAD_BYTES + _REFUSED.size))
    if kind == FrameKind.HAVE and version >= WITH_HAVE:
        flags, names = frame[HEAD_BYTES], frame[HEAD_BYTES + 1 :]
        return Have(nonce, run, bool(flags & _BY_GROUP), names)
    if kind == FrameKind.OVER:
        cause, number = _OVER.unpack_from(frame, HEAD_BYTES)
        known = Cause(cause) if cause in _CAUSES else Cause.OTHER
        return Over(nonce, run, known, number, _text(frame, HEAD_BYTES + _OVER.size))
    raise BadFrame("unknown kind")


def _text(frame: bytes, at: int) -> str:
    text = frame[at : at + MAX_TEXT_BYTES].decode(errors="replace")
    # The text goes to terminals, some of which obey control characters.
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _offer(formats: Formats) -> bytes:
    """Return the encoded offer; empty for an end of the first release."""
    if formats.newest_link < _WITH_OFFER:
        return b""
    return _OFFER.pack(
        formats.oldest_link, formats.newest_link, formats.oldest_batch, formats.newest_batch
    )


def _read_offer(frame: bytes, at: int) -> Formats:
    if at >= len(frame):
        return FIRST
    oldest_link, newest_link, oldest_batch, newest_batch = _OFFER.unpack_from(frame, at)
    return Formats(oldest_batch, newest_batch, oldest_link, newest_link)


def _frame(version: int, kind: FrameKind, nonce: bytes, run: bytes, body: bytes) -> bytes:
    if len(nonce) != NONCE_BYTES or len(run) != RUN_BYTES:
        raise ValueError(f"nonce of {len(nonce)} and run of {len(run)} bytes, not 8 and 8")
    checked = nonce + run + body
    start = bytes((version, kind))
    return b"".join((start, crc32(checked, crc32(start)).to_bytes(4, "big"), checked))
