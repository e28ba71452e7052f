"""Datagrams of a group: what each says, and the seal that keeps strangers out. Big-endian.

::

    head       4  magic "ISG" and the version, 1
               1  kind
               4  key: the first bytes of the SHA-256 of the group's key
               4  agreement: the first bytes of that digest
               8  sender: blake2b of its cluster ID
              16  epoch: start of the sender's task, ms, and 8 random bytes
               8  counter of the sender's datagrams in the epoch, from 0
    body          encrypted by AES-256-GCM, of which the last 16 bytes are the tag

    PIECE      8  number of the frame in the stream of its publisher, dense, from 0
               1  index of the piece     1  number of pieces     4  bytes of the frame
                  the piece: of the frame itself, or parity from the number of pieces on
    REPAIR    24  publisher and epoch of the frame's stream
                  as PIECE, sent by another site than the publisher
    PULSE      8  number of the last frame that was sent; all ones: none yet
               8  wall clock, ms
                  name of the batch in that frame, or of the last batch before the stream, UTF-8
    NACK      24  publisher and epoch of the stream
                  each: 8 number of a frame, 1 number of pieces that are missing

Each epoch of a sender has a key of its own, derived from the group's: a counter, which is the
nonce, never comes twice under one key. The head is under the seal as well, and the agreement: a
digest of what the sites of a group must have alike, by which others are not heard.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
SITE_BYTES = 8
EPOCH_BYTES = 16
NO_FRAME = (1 << 64) - 1
MOST_PIECES = 255
"""Most pieces of a frame, parity included."""

_MAGIC = b"ISG\x01"
_ID_BYTES = 4
_TAG_BYTES = 16
_HEAD = struct.Struct(f">4sB{_ID_BYTES}s{_ID_BYTES}s{SITE_BYTES}s{EPOCH_BYTES}sQ")
_STREAM = struct.Struct(f">{SITE_BYTES}s{EPOCH_BYTES}s")
_PIECE = struct.Struct(">QBBI")
_PULSE = struct.Struct(">QQ")
_ASKED = struct.Struct(">QB")
_COUNTER = struct.Struct(">4xQ")
_EPOCH = struct.Struct(">Q8s")

ASKED_BYTES = _ASKED.size
"""Bytes of a NACK for each frame that is asked for."""
OVERHEAD = _HEAD.size + _TAG_BYTES + _STREAM.size + _PIECE.size
"""Bytes of a datagram with a piece, beside the piece."""
MOST_ASKED = 100
"""Most frames that one NACK asks for."""


class DatagramKind(IntEnum):
    PIECE = 1
    REPAIR = 2
    PULSE = 3
    NACK = 4


class BadDatagram(Exception):
    """Bytes that are no datagram of this group, or were sent before. `reason` says which."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class GroupStream(NamedTuple):
    """Frames of one publisher's task, numbered from 0."""

    publisher: bytes
    epoch: bytes

    @property
    def began_ms(self) -> int:
        """Start of the publisher's task, by its wall clock."""
        return int(_EPOCH.unpack(self.epoch)[0])


class FramePiece(NamedTuple):
    """One of the equal `pieces` of a frame of `size` bytes, by its index; or parity, from `pieces`
    on.
    """

    stream: GroupStream
    number: int
    piece: int
    pieces: int
    size: int
    data: bytes


class GroupPulse(NamedTuple):
    """Sign of life of a stream; `number` and `name` are of the last frame sent and its batch.
    Before the first, `number` is NO_FRAME, and `name` of the last batch before the stream.
    """

    number: int
    wall_ms: int
    name: str


class Nack(NamedTuple):
    """Frames of a stream that a site lacks, each with the number of pieces missing."""

    stream: GroupStream
    asked: tuple[tuple[int, int], ...]


GroupMessage: TypeAlias = FramePiece | GroupPulse | Nack


class Received(NamedTuple):
    """Message with the stream of the site that sent it."""

    sender: GroupStream
    message: GroupMessage
    counter: int = 0
    """Number of the datagram among those of its sender's epoch."""


def site_id(cluster_id: str) -> bytes:
    """Return the short ID by which datagrams name a site."""
    return hashlib.blake2b(cluster_id.encode(), digest_size=SITE_BYTES).digest()


def new_epoch(wall_ms: int, random_bytes: bytes) -> bytes:
    """Return an epoch that begins now; `random_bytes` are 8."""
    return _EPOCH.pack(wall_ms, random_bytes)


def sealed_as(datagram: bytes) -> bytes:
    """Return key, sender, epoch and counter of a datagram: no two datagrams have all in common."""
    return datagram[len(_MAGIC) + 1 : _HEAD.size]


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:_ID_BYTES]


def _cipher(key: bytes, sender: GroupStream) -> AESGCM:
    derived = hashlib.blake2b(
        sender.publisher + sender.epoch, key=key, digest_size=32, person=b"isthmus group"
    )
    return AESGCM(derived.digest())


class DatagramSealer:
    """Sealer of the datagrams of one site in one epoch, for sites of the same `agreement`."""

    def __init__(self, agreement: bytes, key: bytes, sender: GroupStream) -> None:
        self._sender = sender
        self._agreement = agreement
        self._key_id = _key_id(key)
        self._cipher = _cipher(key, sender)
        self._counter = 0

    def seal(self, message: GroupMessage) -> bytes:
        return self.seal_body(*encode_body(message, self._sender))

    def seal_body(self, kind: int, body: bytes) -> bytes:
        """Seal a body as it is, whatever it says."""
        agreement = self._agreement[:_ID_BYTES]
        head = _HEAD.pack(_MAGIC, kind, self._key_id, agreement, *self._sender, self._counter)
        nonce = _COUNTER.pack(self._counter)
        self._counter += 1
        return head + self._cipher.encrypt(nonce, body, head + self._agreement)


@dataclass(slots=True)
class _Sender:
    """Latest epoch of a site, as its datagrams are opened."""

    epoch: bytes
    key_id: bytes
    cipher: AESGCM
    seen: SeenCounters


class DatagramOpener:
    """Opener of the datagrams that `sites`, by their short IDs, send into a group under any of its
    `keys`: two while one goes to the other. Of each site the latest epoch is heard.
    """

    def __init__(self, agreement: bytes, keys: Sequence[bytes], sites: Collection[bytes]) -> None:
        self._agreement = agreement
        self._keys = {_key_id(key): key for key in keys}
        self._sites = frozenset(sites)
        self._senders: dict[bytes, _Sender] = {}

    def open(self, datagram: bytes) -> Received:
        """Return what a member of the group says. Raises BadDatagram."""
        if len(datagram) < _HEAD.size + _TAG_BYTES or not datagram.startswith(_MAGIC):
            raise BadDatagram("foreign")
        _, kind, key_id, agreement, site, epoch, counter = _HEAD.unpack_from(datagram)
        if key_id not in self._keys or site not in self._sites:
            raise BadDatagram("foreign")
        if agreement != self._agreement[:_ID_BYTES]:
            raise BadDatagram("of another mesh file")
        sender = GroupStream(site, epoch)
        known = self._senders.get(site)
        if known is not None and epoch < known.epoch:
            raise BadDatagram("of an older epoch")
        if known is not None and (epoch, key_id) == (known.epoch, known.key_id):
            cipher = known.cipher
        else:
            cipher, known = _cipher(self._keys[key_id], sender), None
        head = datagram[: _HEAD.size]
        try:
            body = cipher.decrypt(
                _COUNTER.pack(counter), datagram[_HEAD.size :], head + self._agreement
            )
        except InvalidTag:
            raise BadDatagram("foreign") from None
        # From here on a member of the group has sent it.
        if known is None:
            known = self._senders[site] = _Sender(epoch, key_id, cipher, SeenCounters())
        if not known.seen.add(counter):
            raise BadDatagram("repeated")
        message = _decoded(kind, body, sender)
        if isinstance(message, FramePiece | Nack) and message.stream.publisher not in self._sites:
            raise BadDatagram("malformed")
        return Received(sender, message, counter)


class SeenCounters:
    """Counters of one sender's datagrams that have come: the latest ones, and all before."""

    _WINDOW = 4096

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0
        """Bit n: the counter `_highest` - n has come."""

    def add(self, counter: int) -> bool:
        """Note a counter; return False if it has come before, or is too old to know."""
        behind = self._highest - counter
        if behind < 0:
            # A member may claim any counter: no shift by more than there is.
            kept = self._bits << -behind if -behind < self._WINDOW else 0
            self._bits = (kept | 1) & ((1 << self._WINDOW) - 1)
            self._highest = counter
            return True
        if behind >= self._WINDOW or self._bits >> behind & 1:
            return False
        self._bits |= 1 << behind
        return True


def encode_body(message: GroupMessage, sender: GroupStream) -> tuple[DatagramKind, bytes]:
    """Return kind and body of a datagram, before they are sealed."""
    match message:
        case FramePiece(stream, number, index, count, size, data):
            piece = _PIECE.pack(number, index, count, size) + data
            if stream == sender:
                return DatagramKind.PIECE, piece
            return DatagramKind.REPAIR, _STREAM.pack(*stream) + piece
        case GroupPulse(number, wall_ms, name):
            return DatagramKind.PULSE, _PULSE.pack(number, wall_ms) + name.encode()
        case Nack(stream, asked):
            return DatagramKind.NACK, _STREAM.pack(*stream) + b"".join(
                _ASKED.pack(number, missing) for number, missing in asked
            )


def _decoded(kind: int, body: bytes, sender: GroupStream) -> GroupMessage:
    """Read a body that a member sent, of this version or a broken one. Raises BadDatagram."""
    try:
        if kind == DatagramKind.PIECE:
            return _piece(body, 0, sender)
        if kind == DatagramKind.REPAIR:
            return _piece(body, _STREAM.size, GroupStream(*_STREAM.unpack_from(body)))
        if kind == DatagramKind.PULSE:
            number, wall_ms = _PULSE.unpack_from(body)
            return GroupPulse(number, wall_ms, body[_PULSE.size :].decode())
        if kind == DatagramKind.NACK:
            asked = tuple(_ASKED.iter_unpack(body[_STREAM.size :]))
            if len(asked) > MOST_ASKED or any(not missing for _, missing in asked):
                raise BadDatagram("malformed")
            return Nack(GroupStream(*_STREAM.unpack_from(body)), asked)
    except (struct.error, UnicodeDecodeError):
        raise BadDatagram("malformed") from None
    raise BadDatagram("of an unknown kind")


def _piece(body: bytes, start: int, stream: GroupStream) -> FramePiece:
    number, index, count, size = _PIECE.unpack_from(body, start)
    data = body[start + _PIECE.size :]
    # All pieces of a frame are as long, and each has some of its bytes.
    if not count or not size or len(data) != -(-size // count) or len(data) * (count - 1) >= size:
        raise BadDatagram("malformed")
    return FramePiece(stream, number, index, count, size, data)
