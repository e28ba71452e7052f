"""State of a node, changed only by atomic commits.

A `Commit` gathers what belongs together (a flow's next place, the identities that it delivered and
their ledger rows) and `NodeState.write` writes all of it at once to the store: after any crash all
of it is there or none.

Tables and keys::

    state   "f" + flow           -> flow state            "p" + text name  -> place
            "v" + incarnation    -> origin, end           "m" + text key   -> any bytes
              + origin
            "n" + 1 stage        -> 8 number of the stage's next ledger row
            "d" + flow + name    -> deferred messages of the batch
    names   1 2 + series         -> settled: varint intervals, then each: varint missing, names
    ledger  1 stage + 8 number   -> row
    barrier.a, barrier.b         see `dedup.barrier`

Numbers in keys are big-endian, so that they sort.

The state is a cache of the log. It has a version: a folder of a newer version is refused, an older
one is brought up at opening. Each part has a version of its own as well; a newer part is refused in
the same way, never taken for damage, never begun anew. A folder is written as the oldest version
that can do with what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from dedup.generations import GENERATIONS
from dedup.store import Changes, Store
from relay.batches import varint
from relay.batches.batch import BatchName, Flow, Place, Predecessor, Series
from relay.batches.incarnation import INCARNATION_BYTES
from relay.batches.name_set import NameSet
from relay.ledger.rows import LedgerRow, Stage, encode_row
from relay.state.codec import (
    encode_flow,
    encode_name,
    encode_place,
    encode_series,
    get_flow,
    get_name,
    get_place,
    get_series,
)
from relay.state.deferred_entries import (
    DEFERRED_VERSION,
    DeferredEntry,
    decode_deferred,
    encode_deferred,
)
from relay.state.flow_state import (
    FLOW_STATE_VERSION,
    FlowState,
    decode_flow_state,
    encode_flow_state,
)

STATE_VERSION = 2
_WITHOUT_DEFERRED = 1
"""Version of a folder without deferred messages: a program that knows none would send whole batches
again.
"""

STATE = "state"
NAMES = "names"
LEDGER = "ledger"
TABLES = (STATE, NAMES, LEDGER, *GENERATIONS)
"""Tables with which a node's store is opened."""
POINT_TABLES = frozenset(GENERATIONS)
"""Tables that are read by single keys."""
VERSION_AT = STATE, b"mversion"
"""Table and key without which a state is none."""
_DEFERRED = b"d"
_SETTLED = b"\x02"
_QUIESCED = "quiesced"
_ANSWERED = "answered"
PACKER_RECORD = "packer"
"""Key of the record that a packer leaves to its successor."""


class StateError(Exception):
    """Root of the errors of a node's state.

    StateError
    +- StateTooNew    written by a newer version of this program
    +- StateUnreadable  a record that this version ought to read and cannot
    """


class StateTooNew(StateError):
    """The folder, or a part of it, was written by a newer version."""

    def __init__(self, found: int, known: int = STATE_VERSION, part: str = "") -> None:
        whose = f"the state folder's {part}" if part else "the state folder"
        super().__init__(
            f"{whose} has format {found}, this version of Isthmus knows up to {known}: start the"
            " newer version again, or move the folder away and run `isthmus recover`"
        )
        self.found = found
        self.part = part


class StateUnreadable(StateError):
    """A record cannot be read."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"the state's {what} cannot be read: {reason}; move the folder away and run"
            " `isthmus recover`"
        )
        self.what = what
        self.reason = reason


class StateVerdict(Enum):
    """Verdict on the state folder at a node's start."""

    OK = "ok"
    FIRST_START = "first start"
    LOST = "lost"
    """The broker has seen this site's deliverer, the folder has not: run `isthmus recover`."""
    OLDER_THAN_MARK = "older than the broker's mark"
    """The folder is a restored copy: messages that it would send again were sent already. Counts as
    lost.
    """


FIRST_MARK = 0
"""Broker's mark before the first delivery. At offset 0 stands a packer's own mark, or a batch of a
neighbour that was a moment faster.
"""


def judge_state(
    has_state: bool, state_position: int | None, broker_mark: int | None
) -> StateVerdict:
    """Judge a state folder. `state_position` is the offset of the deliverer's position in the
    present log, or None if it has none there yet; `broker_mark` is the mark in the broker, or None
    only for the broker's exact "no offset". A mark must be stored only after the position is on the
    disk; FIRST_MARK is stored before anything is delivered, so that it rests on no position.
    """
    if not has_state:
        return StateVerdict.FIRST_START if broker_mark is None else StateVerdict.LOST
    if broker_mark is None or broker_mark <= (state_position or FIRST_MARK):
        return StateVerdict.OK
    return StateVerdict.OLDER_THAN_MARK


class RowRange(NamedTuple):
    """Ledger rows of a stage from `first` to `last` (exclusive)."""

    stage: Stage
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """State that a node needs in memory at start; the barrier and the rows stay in the store."""

    flows: Mapping[Flow, FlowState]
    positions: dict[str, Place]
    settled: NameSet
    voids: tuple[tuple[str, Predecessor], ...]
    """Ends of former incarnations of packers, each with its origin."""
    deferred: Mapping[Flow, Mapping[BatchName, tuple[DeferredEntry, ...]]]


class Commit:
    """One atomic write: built, written once, dropped. An unwritten commit has done nothing."""

    def __init__(self) -> None:
        self.changes = Changes()
        """Changes of the store, to which the barrier adds its own."""
        self.rows: list[tuple[Stage, bytes]] = []

    def flow(self, flow: Flow, state: FlowState) -> None:
        self.changes.put(STATE, b"f" + encode_flow(flow), encode_flow_state(state))

    def deferred(self, flow: Flow, name: BatchName, entries: Sequence[DeferredEntry]) -> None:
        """Keep the deferred messages of a batch; none: forget the batch's record."""
        key = _DEFERRED + encode_flow(flow) + encode_name(name)
        if not entries:
            self.changes.delete(STATE, key)
            return
        self.put("version", STATE_VERSION.to_bytes(4))
        self.changes.put(STATE, key, encode_deferred(entries))

    def position(self, name: str, place: Place | None) -> None:
        """Set how far the stage or link of this name has safely got; None forgets the position."""
        key = b"p" + name.encode()
        if place is None:
            self.changes.delete(STATE, key)
        else:
            self.changes.put(STATE, key, encode_place(place))

    def settled(self, names: NameSet, changed: Iterable[Series]) -> None:
        """Keep the present intervals of the changed series; an empty series is forgotten."""
        for series in changed:
            key = _SETTLED + encode_series(series)
            intervals = names.intervals(series)
            if intervals:
                self.changes.put(NAMES, key, _encode_intervals(intervals))
            else:
                self.changes.delete(NAMES, key)

    def void(self, origin: str, predecessors: Iterable[Predecessor]) -> None:
        """Record that these incarnations of the origin's packer have ended."""
        for predecessor in predecessors:
            value = bytearray()
            varint.put_text(value, origin)
            varint.put(value, predecessor.end + 1)
            # The key has both: an end that one origin reports voids no other origin's incarnation.
            key = b"v" + predecessor.incarnation + origin.encode()
            self.changes.put(STATE, key, bytes(value))

    def row(self, row: LedgerRow) -> None:
        """Add a ledger row, numbered in its stage when the commit is written."""
        self.rows.append((row.stage, encode_row(row)))

    def delete_rows(self, rows: RowRange) -> None:
        """Delete exported rows, whose file is on the disk under its name."""
        self.changes.delete_range(
            LEDGER, _row_key(rows.stage, rows.first), _row_key(rows.stage, rows.last)
        )

    def put(self, key: str, value: bytes | None) -> None:
        """Set a small value of the node's own (log ID, revision, ...); None deletes the key."""
        if value is None:
            self.changes.delete(STATE, b"m" + key.encode())
        else:
            self.changes.put(STATE, b"m" + key.encode(), value)


class NodeState:
    """State of a node over a store opened with TABLES."""

    def __init__(self, store: Store) -> None:
        """Raises StateTooNew, StateUnreadable, and the store's errors."""
        self.store = store
        version = self.get("version")
        self.is_new = version is None
        """True if nobody has used this folder before."""
        if version is not None and int.from_bytes(version) > STATE_VERSION:
            raise StateTooNew(int.from_bytes(version))
        self.was_clean = self.get("clean") == b"\x01"
        """True if the last node ended in order: no stage failed or was cut short."""
        self.was_answered = self.was_clean and self.get(_ANSWERED) == self._run_mark()
        """True if nothing that the last node sent to the broker can arrive later."""
        self._next_row = {stage: self._load_next_row(stage) for stage in Stage}

    def begin(self, state_id: bytes) -> None:
        """Mark the folder as used and not cleanly ended, as the node starts. `state_id` is random
        and kept only by a new folder. The caller syncs the store before anything runs.
        """
        commit = Commit()
        has_deferred = next(iter(self.store.scan(STATE, _DEFERRED, b"e")), None) is not None
        version = STATE_VERSION if has_deferred else _WITHOUT_DEFERRED
        commit.put("version", version.to_bytes(4))
        commit.put("clean", b"\x00")
        commit.put(_QUIESCED, None)
        commit.put(_ANSWERED, None)
        if self.get("state_id") is None:
            commit.put("state_id", state_id)
        self.store.write(commit.changes)

    def end(self, commit: Commit, *, is_quiesced: bool = False, is_answered: bool = False) -> None:
        """Write the last commit of a node that ends in order; the caller syncs the store.
        `is_quiesced`: nothing of the log was under way or undelivered; `is_answered`: nor had the
        broker anything to answer.
        """
        commit.put("clean", b"\x01")
        commit.put(_QUIESCED, b"\x01" if is_quiesced else None)
        commit.put(_ANSWERED, self._run_mark() if is_answered else None)
        self.write(commit)

    def _run_mark(self) -> bytes:
        """Return what each run of a node changes, also of a version that knows no answers: the
        record of its packer.
        """
        digest = blake2b(self.get(PACKER_RECORD) or b"", digest_size=8)
        return digest.digest()

    @property
    def is_quiesced(self) -> bool:
        """True if the last node left nothing of its log under way or undelivered."""
        return self.get(_QUIESCED) is not None

    def write(self, commit: Commit) -> None:
        """Write the commit at once: safe from the end of the process, not yet from a power cut."""
        self.store.write(self._complete(commit))

    async def write_synced(self, commit: Commit) -> None:
        """Write the commit at once; return when it is on the disk, with all earlier writes."""
        await self.store.write_synced(self._complete(commit))

    def _complete(self, commit: Commit) -> Changes:
        """Number the rows and names that the commit adds, which then cannot be written again."""
        changes = commit.changes
        if commit.rows:
            ledger, next_row = changes.table(LEDGER), self._next_row
            for stage, encoded in commit.rows:
                number = next_row[stage]
                next_row[stage] = number + 1
                ledger[_row_key(stage, number)] = encoded
            for stage in {stage for stage, _ in commit.rows}:
                changes.put(STATE, b"n" + bytes([stage]), next_row[stage].to_bytes(8))
            commit.rows = []
        return changes

    def get(self, key: str) -> bytes | None:
        """Small value of the node's own."""
        return self.store.get(STATE, b"m" + key.encode())

    def load(self) -> Loaded:
        """Load the state. Raises StateTooNew, StateUnreadable."""
        flows: dict[Flow, FlowState] = {}
        positions: dict[str, Place] = {}
        voids: list[tuple[str, Predecessor]] = []
        deferred: dict[Flow, dict[BatchName, tuple[DeferredEntry, ...]]] = {}
        for key, value in self.store.scan(STATE):
            kind, rest = key[:1], key[1:]
            try:
                if kind == b"f":
                    if value and value[0] > FLOW_STATE_VERSION:
                        raise StateTooNew(value[0], FLOW_STATE_VERSION, "record of a flow")
                    flows[get_flow(rest, 0)[0]] = decode_flow_state(value)
                elif kind == b"p":
                    positions[rest.decode()] = get_place(value, 0)[0]
                elif kind == b"v":
                    origin, at = varint.get_text(value, 0)
                    end = varint.get(value, at)[0] - 1
                    voids.append((origin, Predecessor(rest[:INCARNATION_BYTES], end)))
                elif kind == _DEFERRED:
                    if value and value[0] > DEFERRED_VERSION:
                        part = "record of deferred messages"
                        raise StateTooNew(value[0], DEFERRED_VERSION, part)
                    flow, at = get_flow(rest, 0)
                    entries = decode_deferred(value)
                    deferred.setdefault(flow, {})[get_name(rest, at)[0]] = entries
            except ValueError as error:
                raise StateUnreadable(f"record {key!r}", str(error)) from error
        settled = NameSet()
        for key, value in self.store.scan(NAMES, _SETTLED):
            try:
                series, _ = get_series(key, 1)
                _decode_intervals(value, series, settled)
            except ValueError as error:
                raise StateUnreadable(f"names {key!r}", str(error)) from error
        return Loaded(flows, positions, settled, tuple(voids), deferred)

    def values(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Small values of the node's own whose keys begin with `prefix`."""
        begin = b"m" + prefix.encode()
        for key, value in self.store.scan(STATE, begin, begin + b"\xff"):
            yield key[1:].decode(), value

    # -- ledger rows -------------------------------------------------------------------------

    def next_row(self, stage: Stage) -> int:
        """Number of the stage's next row."""
        return self._next_row[stage]

    def rows(self, stage: Stage, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Numbers and encoded rows of a stage that are in the store, from `first` on."""
        for key, value in self.store.scan(LEDGER, _row_key(stage, first), bytes([stage + 1])):
            yield int.from_bytes(key[1:]), value

    def _load_next_row(self, stage: Stage) -> int:
        kept = self.store.get(STATE, b"n" + bytes([stage]))
        return 0 if kept is None else int.from_bytes(kept)


def _row_key(stage: Stage, number: int) -> bytes:
    return bytes([stage]) + number.to_bytes(8)


def _encode_intervals(intervals: list[tuple[int, int]]) -> bytes:
    out = bytearray()
    varint.put(out, len(intervals))
    end_before = 0
    for start, end in intervals:
        varint.put(out, start - end_before)
        varint.put(out, end - start)
        end_before = end
    return bytes(out)


def _decode_intervals(data: bytes, series: Series, into: NameSet) -> None:
    count, at = varint.get(data, 0)
    end = 0
    for _ in range(count):
        missing, at = varint.get(data, at)
        length, at = varint.get(data, at)
        into.add_range(series, end + missing, end + missing + length)
        end += missing + length
