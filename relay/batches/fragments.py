"""Messages too big for one batch: cut into pieces, and put together from whatever copies came.

A piece is a batch of its own (`BatchKind.FRAGMENT`) with one entry, whose body is the piece; key,
properties, identity and deadline stand in every piece. The pieces of a message have consecutive
sequences in their series, so (series, sequence - piece) names the message. In a log they need not
be consecutive: other links write between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from relay.batches.batch import BatchHeader, BatchName, Entry, Flow, Fragment

FRAGMENT_ABOVE = 700 * 1024
"""A message of more bytes than this (key, properties and body) travels in pieces."""
PIECE_BYTES = 768 * 1024
MAX_HELD_BYTES = 512 * 1024 * 1024
"""A flow's unfinished messages take no more. One is the rule, and the broker takes none larger."""
MAX_UNFINISHED = 64
"""... and are no more: a flow has several only while the packer that began one has died."""


def split(entry: Entry) -> Iterator[tuple[Fragment, Entry]]:
    """The message's pieces in order, made one at a time: it may be 100 MB."""
    pieces = max(1, -(-len(entry.body) // PIECE_BYTES))
    for piece in range(pieces):
        body = entry.body[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]
        yield Fragment(piece, pieces), entry._replace(body=body)


class FragmentMismatch(Exception):
    """Pieces that claim to be of one message and cannot be: quarantine this batch."""

    def __init__(self, name: BatchName, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(slots=True)
class _Unfinished:
    pieces: int
    body: bytearray
    """What is there without a gap from the first piece on. One growing block: pieces kept apart
    and joined in the end would take their memory twice."""
    reached: int
    later: dict[int, bytes]
    """Pieces that came before their time."""
    whole: int = -1
    """The highest number over the whole incarnation among its pieces."""

    def take(self, piece: int, body: bytes) -> None:
        self.later[piece] = body
        while self.reached in self.later:
            self.body += self.later.pop(self.reached)
            self.reached += 1

    def has(self, piece: int) -> bool:
        return piece < self.reached or piece in self.later

    @property
    def size(self) -> int:
        return len(self.body) + sum(map(len, self.later.values()))


class FragmentAssembly:
    """Puts messages together from their pieces, in any order and from any copies.

    Per flow, pieces come in the order of the origin's log; so once a flow shows batches of a
    later incarnation, an unfinished message of an earlier one will never be complete (its packer
    died in the middle, and its successor packed the message anew): `abandon_earlier`.
    """

    def __init__(self) -> None:
        self._unfinished: dict[BatchName, _Unfinished] = {}
        self._bytes = 0

    @property
    def bytes_held(self) -> int:
        """Bytes of unfinished messages in memory."""
        return self._bytes

    @property
    def unfinished(self) -> list[BatchName]:
        """Names of the first pieces of messages that are not complete, oldest first."""
        return list(self._unfinished)

    @property
    def begun(self) -> bool:
        """Whether a message that is not complete has its first piece here. What lacks that may wait
        for ever: a flow's pieces come in order, so retention has eaten it somewhere.
        """
        return any(unfinished.reached for unfinished in self._unfinished.values())

    def add(self, header: BatchHeader, entry: Entry) -> Entry | None:
        """Take a piece; the whole message when this piece completes it. Raises FragmentMismatch.

        A piece that is there already is not taken again.
        """
        first, pieces = message_of(header)
        assert header.fragment is not None
        piece = header.fragment.piece
        unfinished = self._unfinished.get(first)
        if unfinished is None:
            if pieces == 1:
                return entry
            if len(self._unfinished) >= MAX_UNFINISHED:
                raise FragmentMismatch(header.name, "too many messages are unfinished")
            unfinished = self._unfinished[first] = _Unfinished(pieces, bytearray(), 0, {})
        if unfinished.pieces != pieces:
            raise FragmentMismatch(
                header.name, f"piece of {pieces} of a message of {unfinished.pieces} pieces"
            )
        unfinished.whole = max(unfinished.whole, header.incarnation_sequence)
        if unfinished.has(piece):
            return None
        if self._bytes + len(entry.body) > MAX_HELD_BYTES:
            raise FragmentMismatch(header.name, "unfinished messages of too many bytes")
        unfinished.take(piece, entry.body)
        self._bytes += len(entry.body)
        if unfinished.reached < pieces:
            return None
        self._forget(first)
        # As it is, without a copy: nobody holds it but who gets it now.
        return entry._replace(body=cast(bytes, unfinished.body))

    def abandon_earlier(self, flow: Flow, incarnation: bytes) -> list[BatchName]:
        """The flow shows `incarnation` now: give up what others of that flow left unfinished."""
        given_up = [
            first
            for first in self._unfinished
            if first.series.flow == flow and first.series.incarnation != incarnation
        ]
        for first in given_up:
            self._forget(first)
        return given_up

    def abandon_passed(
        self, header: BatchHeader, has_ended: Callable[[BatchName], bool]
    ) -> list[BatchName]:
        """Another batch of the flow has come: give up what it shows never to become complete.

        Nothing else of a flow stands between a message's pieces; so what comes later in their
        incarnation comes after the last of them, and of one that `has_ended` nothing more comes.
        Raises FragmentMismatch.
        """
        flow, incarnation = header.name.series.flow, header.name.series.incarnation
        its_own = message_of(header)[0] if header.fragment is not None else None
        given_up = [
            first
            for first, unfinished in self._unfinished.items()
            if first.series.flow == flow
            and first != its_own
            and (
                unfinished.whole < header.incarnation_sequence
                if first.series.incarnation == incarnation
                else has_ended(first)
            )
        ]
        for first in given_up:
            self._forget(first)
        return given_up

    def _forget(self, first: BatchName) -> None:
        self._bytes -= self._unfinished.pop(first).size


def message_of(header: BatchHeader) -> tuple[BatchName, int]:
    """(name of the message's first piece, number of pieces). Raises FragmentMismatch."""
    fragment = header.fragment
    if fragment is None:
        raise FragmentMismatch(header.name, "a fragment's batch without fragment numbers")
    first = header.name.sequence - fragment.piece
    if first < 0 or not 0 <= fragment.piece < fragment.pieces:
        raise FragmentMismatch(
            header.name, f"piece {fragment.piece} of {fragment.pieces} cannot stand here"
        )
    return BatchName(header.name.series, first), fragment.pieces
