"""The last messages of each partition in the own log: candidates for what egress hands out again.

Lanes do not matter: a partition of an exchange has one egress queue, and the log has its messages
in the queue's order even where the mesh file has moved the exchange into another lane, which is
another flow.

A tail has as many messages as a consumer may hold unacknowledged, as digests; where messages of
several consumers may come back together (a cluster keeps those of a lost node for a while), each
incarnation has such a tail. Made when an incarnation begins, by reading the log twice: first the
headers alone, since the end that makes a batch void may stand behind the batch, and void messages
must not take the places of others; then the needed batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import decode_entries
from relay.batches.fragments import message_of
from relay.packing.comeback.returned_prefix import PREFETCH, TailEntry, digest_start, message_digest
from relay.packing.intake import is_named
from relay.packing.packer_record import Acked

VoidRule: TypeAlias = Callable[[bytes, int], bool]
"""(incarnation, whole-incarnation sequence) -> True if the batch counts."""
AckedUpTo: TypeAlias = Callable[[bytes, int], bool]
"""(incarnation, whole-incarnation sequence) -> True if the batch may be acknowledged."""


class _Seen(NamedTuple):
    offset: int
    messages: int
    incarnation: bytes
    whole_sequence: int


class TailSearch:
    """First reading: search for the batches that make up the tails. `per_incarnation`: collect a
    whole tail for each incarnation instead of for all together.
    """

    def __init__(self, *, per_incarnation: bool = False) -> None:
        self._per_incarnation = per_incarnation
        self._seen: dict[str, list[_Seen]] = {}
        """Batches by partition."""

    def take(self, offset: int, header: BatchHeader) -> None:
        """Take in the next own batch of the log, void or not."""
        if header.kind is BatchKind.MESSAGES:
            count = header.entry_count
        elif header.kind in (BatchKind.FRAGMENT, BatchKind.REPAIR):
            count = 0  # so that the tail can only begin earlier
        else:
            return
        series = header.name.series
        self._seen.setdefault(series.partition, []).append(
            _Seen(offset, count, series.incarnation, header.incarnation_sequence)
        )

    def needed(self, counts: VoidRule) -> dict[str, set[int]]:
        """Offsets of the batches with the last messages, by partition."""
        needed: dict[str, set[int]] = {}
        for partition, seen in self._seen.items():
            found: dict[bytes, int] = {}
            offsets = needed[partition] = set()
            for batch in reversed(seen):
                incarnation = batch.incarnation if self._per_incarnation else b""
                if found.get(incarnation, 0) >= PREFETCH:
                    if not self._per_incarnation:
                        break
                elif counts(batch.incarnation, batch.whole_sequence):
                    offsets.add(batch.offset)
                    found[incarnation] = found.get(incarnation, 0) + batch.messages
        return needed


@dataclass(slots=True)
class _Logged:
    """Messages of one batch, or a big message under its last piece."""

    name: BatchName
    whole_sequence: int
    entries: tuple[TailEntry, ...]

    @property
    def incarnation(self) -> bytes:
        return self.name.series.incarnation


@dataclass(slots=True)
class _Pieces:
    """Big message, as far as the log shows its pieces."""

    first: BatchName
    next_piece: int
    digest: blake2b
    properties: bytes


class LoggedTail:
    """Tails of the partitions of one origin's exchanges, of batches from egress.
    `per_incarnation`: see TailSearch.
    """

    def __init__(self, *, per_incarnation: bool = False) -> None:
        self._per_incarnation = per_incarnation
        self._tails: dict[str, dict[bytes, deque[_Logged]]] = {}
        """Batches by partition, and by incarnation if each has its own tail; else under one key."""
        self._counts: dict[tuple[str, bytes], int] = {}
        self._pieces: dict[str, _Pieces] = {}

    def add(self, header: BatchHeader, data: bytes) -> None:
        """Add the next own batch in log order, never a void batch.

        Raises FragmentMismatch, and BadBatch for bytes that cannot be opened.
        """
        if header.kind is BatchKind.MESSAGES:
            entries = tuple(
                TailEntry(
                    message_digest(e.routing_key, e.properties, e.body),
                    e.deadline_ms != 0,
                    e.doubtful,
                    is_named(e),
                    e.properties,
                )
                for e in decode_entries(data)
            )
            self._keep(header, entries)
        elif header.kind is BatchKind.FRAGMENT:
            self._add_piece(header, data)

    @property
    def partitions(self) -> list[str]:
        """Partitions that have messages in the tail."""
        return list(self._tails)

    def last(self, partition: str) -> Acked | None:
        """Last batch of the partition, or None if the tail has none."""
        last = next(self._backwards(partition), None)
        return None if last is None else Acked(last.incarnation, last.whole_sequence)

    def entries(self, partition: str) -> list[TailEntry]:
        """Last messages of the partition, oldest first."""
        return [entry for logged in self._of(partition) for entry in logged.entries]

    def after(self, partition: str, acknowledged: AckedUpTo) -> int:
        """Number of last messages in batches of which none was acknowledged."""
        count = 0
        for logged in self._backwards(partition):
            if acknowledged(logged.incarnation, logged.whole_sequence):
                break
            count += len(logged.entries)
        return count

    def is_spread(self, partition: str) -> bool:
        """True if there are several destination sets: the log's order may not be egress's."""
        sets = {logged.name.series.destinations for logged in self._of(partition)}
        return len(sets) > 1

    def batches_not(self, partition: str, acknowledged: AckedUpTo) -> list[BatchName]:
        """Batches of which no message was acknowledged, oldest first."""
        return [
            logged.name
            for logged in self._of(partition)
            if not acknowledged(logged.incarnation, logged.whole_sequence)
        ]

    def batches_of_last(self, partition: str, count: int) -> list[BatchName]:
        """Batches with the last `count` messages (a big one's last piece), oldest first."""
        names: list[BatchName] = []
        for logged in self._backwards(partition):
            if count <= 0:
                break
            names.append(logged.name)
            count -= len(logged.entries)
        return names[::-1]

    def _of(self, partition: str) -> Iterator[_Logged]:
        return chain.from_iterable(self._tails.get(partition, {}).values())

    def _backwards(self, partition: str) -> Iterator[_Logged]:
        tails = self._tails.get(partition, {})
        return chain.from_iterable(map(reversed, reversed(tails.values())))

    def _add_piece(self, header: BatchHeader, data: bytes) -> None:
        partition = header.name.series.partition
        first, pieces = message_of(header)
        assert header.fragment is not None
        (entry,) = decode_entries(data)
        seen = self._pieces.get(partition)
        if header.fragment.piece == 0:
            digest = digest_start(entry.routing_key, entry.properties)
            seen = _Pieces(first, 0, digest, entry.properties)
            self._pieces[partition] = seen
        if seen is None or seen.first != first or seen.next_piece != header.fragment.piece:
            # The first pieces lie before the place where reading began.
            self._pieces.pop(partition, None)
            return
        seen.digest.update(entry.body)
        seen.next_piece += 1
        if seen.next_piece == pieces:
            del self._pieces[partition]
            expires = entry.deadline_ms != 0
            whole = TailEntry(
                seen.digest.digest(), expires, entry.doubtful, is_named(entry), seen.properties
            )
            self._keep(header, (whole,))

    def _keep(self, header: BatchHeader, entries: tuple[TailEntry, ...]) -> None:
        partition = header.name.series.partition
        logged = _Logged(header.name, header.incarnation_sequence, entries)
        incarnation = logged.incarnation if self._per_incarnation else b""
        tail = self._tails.setdefault(partition, {}).setdefault(incarnation, deque())
        tail.append(logged)
        count = self._counts.get((partition, incarnation), 0) + len(logged.entries)
        while count - len(tail[0].entries) >= PREFETCH:
            count -= len(tail.popleft().entries)
        self._counts[partition, incarnation] = count
