"""Binds the stages' memory Protocols to one node's state, without logic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.packed_entries import PackedBatch
from relay.ledger.batch_rows import linked_row, packed_row
from relay.ledger.rows import LedgerRow, Stage
from relay.links.position import POSITION_VERSION, LinkPosition
from relay.links.transport.connection import Clock
from relay.log.snapshot import SNAPSHOT_VERSION
from relay.packing.packer_record import RECORD_VERSION
from relay.state.node_state import (
    PACKER_RECORD,
    Commit,
    NodeState,
    StateTooNew,
    StateUnreadable,
)

_LOG = "log"
_LINK = "link:"
_BEGAN = "link began:"


def check_versions(state: NodeState) -> None:
    """Check all parts of the state before any of them is used. Raises StateTooNew for a part that a
    newer version of the program wrote, StateUnreadable for a damaged one.
    """
    snapshot = state.get(_LOG)
    if snapshot and snapshot[0] > SNAPSHOT_VERSION:
        raise StateTooNew(snapshot[0], SNAPSHOT_VERSION, "snapshot of the log")
    for key, value in state.values(_LINK):
        _check_json(value, POSITION_VERSION, f"position of link {key.removeprefix(_LINK)}")
    record = state.get(PACKER_RECORD)
    if record is not None:
        _check_json(record, RECORD_VERSION, "record of the packer")


def _check_json(value: bytes, known: int, part: str) -> None:
    try:
        version = int(json.loads(value)["version"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateUnreadable(part, repr(error)) from error
    if version > known:
        raise StateTooNew(version, known, part)


class StateLogMemory:
    """Snapshot of the log, in the node's state under KEY."""

    KEY = _LOG

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def load(self) -> bytes | None:
        return self._state.get(_LOG)

    def save(self, snapshot: bytes) -> None:
        commit = Commit()
        commit.put(_LOG, snapshot)
        self._state.write(commit)

    async def synced(self) -> None:
        await self._state.store.synced()


def link_began(link: str, first: int) -> tuple[str, bytes]:
    """Return key and value of the first offset that a link needs, in the node's state."""
    return f"{_BEGAN}{link}", str(first).encode()


class StateLinkMemory:
    """Position of one link, in the node's state."""

    def __init__(self, state: NodeState, link: str, receiver: str, clock: Clock) -> None:
        self._state = state
        self._link = link
        self._key = f"{_LINK}{link}"
        self._began, _ = link_began(link, 0)
        self._receiver = receiver
        self._clock = clock

    def load(self) -> LinkPosition | None:
        kept = self._state.get(self._key)
        return None if kept is None else LinkPosition.decode(kept, self._clock.now())

    def save(self, position: LinkPosition, linked: Sequence[BatchHeader]) -> None:
        commit = Commit()
        commit.put(self._key, position.encode())
        now_ms = self._clock.wall_ms()
        for header in linked:
            if header.kind is not BatchKind.CANARY:
                commit.row(linked_row(header, Stage.LINKED_OUT, self._receiver, now_ms))
        self._state.write(commit)

    def began(self) -> int | None:
        kept = self._state.get(self._began)
        return None if kept is None else int(kept)

    def begin(self, first: int, row: LedgerRow | None = None) -> None:
        commit = Commit()
        commit.put(*link_began(self._link, first))
        if row is not None:
            commit.row(row)
        self._state.write(commit)

    def go_on(self, position: LinkPosition, row: LedgerRow) -> None:
        """Begin at `position`, with the reason as a ledger row."""
        commit = Commit()
        commit.put(self._key, position.encode())
        commit.row(row)
        self._state.write(commit)

    def forget(self) -> None:
        """Forget the link, which left the mesh."""
        commit = Commit()
        commit.put(self._key, None)
        commit.put(self._began, None)
        self._state.write(commit)


class StatePackedLedger:
    """Record, under KEY, and ledger rows of the packer: one write of both."""

    KEY = PACKER_RECORD

    def __init__(self, state: NodeState, now_ms: Callable[[], int]) -> None:
        self._state = state
        self._now_ms = now_ms

    def load(self) -> bytes | None:
        return self._state.get(PACKER_RECORD)

    def record(self, packed: Sequence[PackedBatch], record: bytes) -> None:
        commit = Commit()
        for batch in packed:
            commit.row(packed_row(batch, self._now_ms()))
        commit.put(PACKER_RECORD, record)
        self._state.write(commit)

    async def synced(self) -> None:
        await self._state.store.synced()
