"""The last messages of each flow that the own log has: what egress may hand out again.

As many a flow as a consumer may hold unacknowledged, as digests. Made when an incarnation begins,
by reading the log twice: first the headers alone, since what makes a batch void may stand behind
it and void messages must not take the places of others; then the batches that are needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Flow
from relay.batches.format import decode_entries
from relay.batches.fragments import message_of
from relay.packing.packer_record import Acked
from relay.packing.returned_prefix import PREFETCH, TailEntry, digest_start, message_digest

VoidRule: TypeAlias = Callable[[bytes, int], bool]
"""(incarnation, whole-incarnation sequence) -> does that batch count?"""
AckedUpTo: TypeAlias = Callable[[bytes, int], bool]
"""(incarnation, whole-incarnation sequence) -> may messages of that batch have been acknowledged
on egress?"""


class _Seen(NamedTuple):
    offset: int
    messages: int
    incarnation: bytes
    whole_sequence: int


class TailSearch:
    """The first reading: finds which batches make up the tails."""

    def __init__(self) -> None:
        self._seen: dict[Flow, list[_Seen]] = {}

    def take(self, offset: int, header: BatchHeader) -> None:
        """The next own batch of the log, void or not."""
        if header.kind is BatchKind.MESSAGES:
            count = header.entry_count
        elif header.kind in (BatchKind.FRAGMENT, BatchKind.REPAIR):
            count = 0  # which can only make the place an earlier one
        else:
            return
        series = header.name.series
        self._seen.setdefault(series.flow, []).append(
            _Seen(offset, count, series.incarnation, header.incarnation_sequence)
        )

    def first_needed(self, counts: VoidRule) -> dict[Flow, int]:
        """By flow, the offset from which on its last messages stand."""
        needed: dict[Flow, int] = {}
        for flow, seen in self._seen.items():
            wanted = PREFETCH
            for one in reversed(seen):
                if wanted <= 0:
                    break
                if counts(one.incarnation, one.whole_sequence):
                    needed[flow] = one.offset
                    wanted -= one.messages
        return needed


@dataclass(slots=True)
class _Logged:
    """One batch's messages, or the last piece of a message in pieces."""

    name: BatchName
    whole_sequence: int
    entries: tuple[TailEntry, ...]

    @property
    def incarnation(self) -> bytes:
        return self.name.series.incarnation


@dataclass(slots=True)
class _Pieces:
    """A message in pieces, as far as the log shows it."""

    first: BatchName
    next_piece: int
    digest: blake2b
    properties: bytes


class LoggedTail:
    """The tails of all flows of one origin. Only batches that came off egress are kept."""

    def __init__(self) -> None:
        self._flows: dict[Flow, deque[_Logged]] = {}
        self._counts: dict[Flow, int] = {}
        self._pieces: dict[Flow, _Pieces] = {}

    def add(self, header: BatchHeader, data: bytes) -> None:
        """The next own batch in log order, not a void one.

        Raises BadBatch for bytes that cannot be opened, FragmentMismatch.
        """
        if header.kind is BatchKind.MESSAGES:
            entries = tuple(
                TailEntry(
                    message_digest(e.routing_key, e.properties, e.body),
                    e.deadline_ms != 0,
                    e.doubtful,
                    e.properties,
                )
                for e in decode_entries(data)
            )
            self._keep(header, entries)
        elif header.kind is BatchKind.FRAGMENT:
            self._add_piece(header, data)

    @property
    def flows(self) -> list[Flow]:
        """Those that have messages here."""
        return list(self._flows)

    def last(self, flow: Flow) -> Acked | None:
        """The flow's last batch; None if the tail has none."""
        tail = self._flows.get(flow)
        return Acked(tail[-1].incarnation, tail[-1].whole_sequence) if tail else None

    def entries(self, flow: Flow) -> list[TailEntry]:
        """The flow's last messages, oldest first."""
        return [entry for logged in self._flows.get(flow, ()) for entry in logged.entries]

    def after(self, flow: Flow, acknowledged: AckedUpTo) -> int:
        """How many of the last messages stand in batches of which none was acknowledged."""
        count = 0
        for logged in reversed(self._flows.get(flow, ())):
            if acknowledged(logged.incarnation, logged.whole_sequence):
                break
            count += len(logged.entries)
        return count

    def is_spread(self, flow: Flow) -> bool:
        """Whether its messages are for more than one destination set: then the log need not have
        them in egress's order.
        """
        sets = {logged.name.series.destinations for logged in self._flows.get(flow, ())}
        return len(sets) > 1

    def batches_of_last(self, flow: Flow, count: int) -> list[BatchName]:
        """The batches in which the flow's last `count` messages stand, oldest first; of a message
        in pieces the last.
        """
        names: list[BatchName] = []
        for logged in reversed(self._flows.get(flow, ())):
            if count <= 0:
                break
            names.append(logged.name)
            count -= len(logged.entries)
        return names[::-1]

    def _add_piece(self, header: BatchHeader, data: bytes) -> None:
        flow = header.name.series.flow
        first, pieces = message_of(header)
        assert header.fragment is not None
        (entry,) = decode_entries(data)
        seen = self._pieces.get(flow)
        if header.fragment.piece == 0:
            digest = digest_start(entry.routing_key, entry.properties)
            seen = _Pieces(first, 0, digest, entry.properties)
            self._pieces[flow] = seen
        if seen is None or seen.first != first or seen.next_piece != header.fragment.piece:
            # Its first pieces lie before the place where reading began.
            self._pieces.pop(flow, None)
            return
        seen.digest.update(entry.body)
        seen.next_piece += 1
        if seen.next_piece == pieces:
            del self._pieces[flow]
            expires = entry.deadline_ms != 0
            whole = TailEntry(seen.digest.digest(), expires, entry.doubtful, seen.properties)
            self._keep(header, (whole,))

    def _keep(self, header: BatchHeader, entries: tuple[TailEntry, ...]) -> None:
        flow = header.name.series.flow
        logged = _Logged(header.name, header.incarnation_sequence, entries)
        tail = self._flows.setdefault(flow, deque())
        tail.append(logged)
        count = self._counts.get(flow, 0) + len(logged.entries)
        while count - len(tail[0].entries) >= PREFETCH:
            count -= len(tail.popleft().entries)
        self._counts[flow] = count
