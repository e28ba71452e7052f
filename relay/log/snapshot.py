"""Snapshot of a node's knowledge of its log between two runs: a cache, the log is the truth.

::

    1       version (1)
    bytes   log ID                        (bytes: varint length, then they)
    bytes   the logged set, as `name_set` draws it, valid up to the last name below
    varint  number of blocks, then each: bytes, as `recent_names` draws them (checked names only)
    varint  number of totals, then each: varint offset, messages, bytes, each after the one before
    varint  number of incarnations, then each:
              varint length + UTF-8 origin     8  incarnation     varint last publish time, ms
    varint  number of losses, then each:
              bytes  the names lost, as a set
              1      0: they were the whole log     1: what was before them is, up to:
                     table of one series, varint sequence, varint offset   (only if 1)

Names that are confirmed and not read back yet are in neither part: if the log loses its tail while
the node is down, no name may stay logged that nobody looks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.batches import varint
from relay.batches.batch import BatchName, Place
from relay.batches.name_set import NameSet, get_series, put_series
from relay.log.recent_names import Totals

SNAPSHOT_VERSION = 1
_INCARNATION_BYTES = 8


class BadSnapshot(ValueError):
    """Bytes are no snapshot that this node can read. Rebuild from the log."""


class LogMemory(Protocol):
    """Storage of a log's snapshot. `load` and `save` are quick and block."""

    def load(self) -> bytes | None:
        """The snapshot saved last, or None."""
        ...

    def save(self, snapshot: bytes) -> None:
        """Replace the snapshot. No position that is stored later may survive a crash which the
        snapshot does not: both go through the same log of writes.
        """
        ...

    async def synced(self) -> None:
        """Wait until saved data outlives a power cut."""
        ...


class LogLoss(NamedTuple):
    """Names that the log lost, or that stand elsewhere than before, and the last place before them
    that the log kept (None: none).

    The names may have been logged again since, elsewhere: a stored position at such a name may be
    from before the loss and tells nothing of where the name stands now.
    """

    last: Place | None
    names: NameSet


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """Contents of a snapshot. `last_seen` is by (origin, incarnation), in ms since 1970."""

    log_id: bytes
    logged: NameSet
    blocks: Sequence[bytes]
    points: Sequence[Totals] = ()
    last_seen: Mapping[tuple[str, bytes], int] = field(default_factory=dict)
    losses: Sequence[LogLoss] = ()

    def encode(self) -> bytes:
        """Encode as drawn above."""
        out = bytearray([SNAPSHOT_VERSION])
        varint.put_bytes(out, self.log_id)
        varint.put_bytes(out, self.logged.encode())
        varint.put(out, len(self.blocks))
        for block in self.blocks:
            varint.put_bytes(out, block)
        varint.put(out, len(self.points))
        before = Totals(0, 0, 0)
        for point in self.points:
            for number, base in zip(point, before, strict=True):
                varint.put(out, max(0, number - base))
            before = point
        varint.put(out, len(self.last_seen))
        for (origin, incarnation), last_ms in self.last_seen.items():
            varint.put_text(out, origin)
            out += incarnation
            varint.put(out, last_ms)
        varint.put(out, len(self.losses))
        for last, names in self.losses:
            varint.put_bytes(out, names.encode())
            out.append(last is not None)
            if last is not None:
                put_series(out, [last.name.series])
                varint.put(out, last.name.sequence)
                varint.put(out, last.offset)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> LogSnapshot:
        """Decode a snapshot. Raises BadSnapshot."""
        if not data or data[0] != SNAPSHOT_VERSION:
            raise BadSnapshot(f"version {data[0]}" if data else "empty")
        try:
            snapshot, at = _read(data)
        except ValueError as error:
            raise BadSnapshot(str(error)) from error
        if at != len(data):
            raise BadSnapshot(f"{len(data) - at} bytes too many")
        return snapshot


def _read(data: bytes) -> tuple[LogSnapshot, int]:
    log_id, at = varint.get_bytes(data, 1)
    logged, at = varint.get_bytes(data, at)
    block_count, at = varint.get(data, at)
    blocks = []
    for _ in range(block_count):
        block, at = varint.get_bytes(data, at)
        blocks.append(block)
    point_count, at = varint.get(data, at)
    points: list[Totals] = []
    point = Totals(0, 0, 0)
    for _ in range(point_count):
        offset, at = varint.get(data, at)
        messages, at = varint.get(data, at)
        byte_count, at = varint.get(data, at)
        point = Totals(point.offset + offset, point.messages + messages, point.bytes + byte_count)
        points.append(point)
    incarnation_count, at = varint.get(data, at)
    last_seen: dict[tuple[str, bytes], int] = {}
    for _ in range(incarnation_count):
        origin, at = varint.get_text(data, at)
        incarnation = bytes(data[at : at + _INCARNATION_BYTES])
        if len(incarnation) < _INCARNATION_BYTES:
            raise BadSnapshot("cut off")
        last_ms, at = varint.get(data, at + _INCARNATION_BYTES)
        last_seen[origin, incarnation] = last_ms
    loss_count, at = varint.get(data, at)
    losses: list[LogLoss] = []
    for _ in range(loss_count):
        names, at = varint.get_bytes(data, at)
        last, at = _read_last(data, at)
        losses.append(LogLoss(last, NameSet.decode(names)))
    return LogSnapshot(log_id, NameSet.decode(logged), blocks, points, last_seen, losses), at


def _read_last(data: bytes, at: int) -> tuple[Place | None, int]:
    has_last, at = varint.get(data, at)
    if not has_last:
        return None, at
    all_series, at = get_series(data, at)
    if len(all_series) != 1:
        raise BadSnapshot(f"{len(all_series)} series for one place")
    sequence, at = varint.get(data, at)
    offset, at = varint.get(data, at)
    return Place(offset, BatchName(all_series[0], sequence)), at
