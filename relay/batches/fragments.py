"""Messages too big for one batch: split into pieces, and assembled from whatever copies came.

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
"""Bytes of key, properties and body above which a message travels in pieces."""
PIECE_BYTES = 768 * 1024
MAX_HELD_BYTES = 512 * 1024 * 1024
"""Most bytes of a flow's unfinished messages. A flow usually has one, and the broker takes none
larger."""
MAX_UNFINISHED = 64
"""Most unfinished messages of a flow, which has several only while the packer of one has died."""


def split(entry: Entry) -> Iterator[tuple[Fragment, Entry]]:
    """Yield the message's pieces in order, made one at a time: a message may have 100 MB."""
    pieces = max(1, -(-len(entry.body) // PIECE_BYTES))
    for piece in range(pieces):
        body = entry.body[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]
        yield Fragment(piece, pieces), entry._replace(body=body)


class FragmentMismatch(Exception):
    """Pieces claim to be of one message and cannot be: quarantine this batch."""

    def __init__(self, name: BatchName, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


@dataclass(slots=True)
class _Unfinished:
    pieces: int
    body: bytearray
    """Pieces without a gap from the first on, in one growing block: pieces kept apart and joined in
    the end would take their memory twice."""
    reached: int
    later: dict[int, bytes]
    """Pieces behind a gap."""
    whole: int = -1
    """Highest incarnation sequence among the pieces."""

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
    """Assembles messages from their pieces, in any order and from any copies.

    Pieces of a flow come in the order of the origin's log; so once a flow shows batches of a later
    incarnation, an unfinished message of an earlier one will never be complete (its packer died in
    the middle, and the successor packed the message anew): `abandon_earlier`.
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
        """Names of the first pieces of unfinished messages, oldest first."""
        return list(self._unfinished)

    @property
    def begun(self) -> bool:
        """True if an unfinished message has its first piece here. A message without may wait for
        ever: a flow's pieces come in order, so retention has eaten the first piece somewhere.
        """
        return any(unfinished.reached for unfinished in self._unfinished.values())

    def add(self, header: BatchHeader, entry: Entry) -> Entry | None:
        """Take a piece, unless it is here already; return the whole message if the piece completes
        one. Raises FragmentMismatch.
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
        # Without a copy: only the caller holds the body from now on.
        return entry._replace(body=cast(bytes, unfinished.body))

    def abandon_earlier(self, flow: Flow, incarnation: bytes) -> list[BatchName]:
        """Give up unfinished messages of the flow's incarnations other than `incarnation`; return
        their names.
        """
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
        """Give up messages that a later batch of the flow shows never to become complete; return
        their names.

        Nothing else of a flow stands between a message's pieces; so a later batch of the
        incarnation comes after the last piece, and nothing more comes of an incarnation that
        `has_ended`. Raises FragmentMismatch.
        """
        flow, incarnation = header.name.series.flow, header.name.series.incarnation
        own_message = message_of(header)[0] if header.fragment is not None else None
        given_up = [
            first
            for first, unfinished in self._unfinished.items()
            if first.series.flow == flow
            and first != own_message
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
    """Return the name of the message's first piece and the number of pieces. Raises
    FragmentMismatch.
    """
    fragment = header.fragment
    if fragment is None:
        raise FragmentMismatch(header.name, "a fragment's batch without fragment numbers")
    first = header.name.sequence - fragment.piece
    if first < 0 or not 0 <= fragment.piece < fragment.pieces:
        raise FragmentMismatch(
            header.name, f"piece {fragment.piece} of {fragment.pieces} cannot stand here"
        )
    return BatchName(header.name.series, first), fragment.pieces
