"""The last messages of each flow that the own log has: what egress may hand out again.

Fed with the own batches in log order, while they are appended and when the log is read back. As
many a flow as a consumer may hold unacknowledged. Batches are kept as they are, compressed, and
opened only when somebody asks; beyond a budget the oldest are reduced to digests at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

from relay.batch import BatchHeader, BatchKind, BatchName, Flow
from relay.batch_format import decode_entries
from relay.fragments import message_of
from relay.returned_prefix import PREFETCH, TailEntry, digest_start, message_digest

BUDGET_BYTES = 8 * 1024 * 1024
"""Compressed bytes kept, of all flows together. The hot tail mostly keeps the same objects."""

VoidRule: TypeAlias = Callable[[bytes, int], bool]
"""(incarnation, whole-incarnation sequence) -> does that batch count?"""
AckedUpTo: TypeAlias = Callable[[BatchName], bool]
"""May messages of that batch have been acknowledged on egress?"""


@dataclass(slots=True)
class _Logged:
    """One batch: either its bytes, or the digests of its messages."""

    name: BatchName
    whole_sequence: int
    count: int
    data: bytes = b""
    digests: tuple[TailEntry, ...] | None = None

    def entries(self) -> tuple[TailEntry, ...]:
        if self.digests is None:
            return tuple(
                TailEntry(message_digest(e.routing_key, e.properties, e.body), e.deadline_ms != 0)
                for e in decode_entries(self.data)
            )
        return self.digests


@dataclass(slots=True)
class _Pieces:
    """A message in pieces, as far as the log shows it."""

    first: BatchName
    next_piece: int
    digest: blake2b


class LoggedTail:
    """The tails of all flows of one origin. Only batches that came off egress are kept."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._flows: dict[Flow, deque[_Logged]] = {}
        self._counts: dict[Flow, int] = {}
        self._pieces: dict[Flow, _Pieces] = {}
        self._bytes = 0
        self._taken: dict[bytes, int] = {}  # by incarnation, the last whole sequence

    def add(self, header: BatchHeader, data: bytes) -> None:
        """The next own batch in log order. One that is known already is not taken twice.

        Raises BadBatch for bytes that cannot be opened.
        """
        incarnation = header.name.series.incarnation
        if header.incarnation_sequence <= self._taken.get(incarnation, -1):
            return
        self._taken[incarnation] = header.incarnation_sequence
        if header.kind is BatchKind.MESSAGES:
            self._keep(_Logged(header.name, header.incarnation_sequence, header.entry_count, data))
        elif header.kind is BatchKind.FRAGMENT:
            self._add_piece(header, data)

    def _add_piece(self, header: BatchHeader, data: bytes) -> None:
        flow = header.name.series.flow
        first, pieces = message_of(header)
        assert header.fragment is not None
        (entry,) = decode_entries(data)
        seen = self._pieces.get(flow)
        if header.fragment.piece == 0:
            seen = _Pieces(first, 0, digest_start(entry.routing_key, entry.properties))
            self._pieces[flow] = seen
        if seen is None or seen.first != first or seen.next_piece != header.fragment.piece:
            # Its first pieces lie before the place where reading began.
            self._pieces.pop(flow, None)
            return
        seen.digest.update(entry.body)
        seen.next_piece += 1
        if seen.next_piece == pieces:
            del self._pieces[flow]
            whole = TailEntry(seen.digest.digest(), entry.deadline_ms != 0)
            self._keep(_Logged(header.name, header.incarnation_sequence, 1, b"", (whole,)))

    def _keep(self, logged: _Logged) -> None:
        flow = logged.name.series.flow
        tail = self._flows.setdefault(flow, deque())
        tail.append(logged)
        count = self._counts.get(flow, 0) + logged.count
        self._bytes += len(logged.data)
        while count - tail[0].count >= PREFETCH:
            gone = tail.popleft()
            count -= gone.count
            self._bytes -= len(gone.data)
        self._counts[flow] = count
        if self._bytes > self._budget:
            self._reduce()

    def _reduce(self) -> None:
        """Open the older half of every flow's kept bytes, and keep digests only."""
        for tail in self._flows.values():
            raw = [logged for logged in tail if logged.data]
            for logged in raw[: (len(raw) + 1) // 2]:
                logged.digests = logged.entries()
                self._bytes -= len(logged.data)
                logged.data = b""

    def forget_void(self, counts: VoidRule) -> None:
        """Drop what turned out not to count: `counts(incarnation, whole sequence)` is False."""
        self._retain(lambda one: counts(one.name.series.incarnation, one.whole_sequence))

    def forget_unless(self, is_logged: Callable[[BatchName], bool]) -> None:
        """Drop what the log has lost."""
        self._retain(lambda one: is_logged(one.name))

    def _retain(self, wanted: Callable[[_Logged], bool]) -> None:
        for flow, tail in self._flows.items():
            kept = deque(one for one in tail if wanted(one))
            if len(kept) != len(tail):
                self._flows[flow] = kept
                self._counts[flow] = sum(one.count for one in kept)
        self._bytes = sum(len(one.data) for tail in self._flows.values() for one in tail)

    @property
    def flows(self) -> list[Flow]:
        return list(self._flows)

    def last_name(self, flow: Flow) -> BatchName | None:
        """The name of the flow's last batch; None if the tail has none."""
        tail = self._flows.get(flow)
        return tail[-1].name if tail else None

    def entries(self, flow: Flow) -> list[TailEntry]:
        """The flow's last messages, oldest first."""
        return [entry for logged in self._flows.get(flow, ()) for entry in logged.entries()]

    def after(self, flow: Flow, acknowledged: AckedUpTo) -> int:
        """How many of the last messages stand in batches of which none was acknowledged."""
        count = 0
        for logged in reversed(self._flows.get(flow, ())):
            if acknowledged(logged.name):
                break
            count += logged.count
        return count
