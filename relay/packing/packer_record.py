"""Record that a packer leaves to its successor, and the seam to its store.

The record is written *before* the acknowledgements that it covers are sent, so messages not covered
were certainly not acknowledged. The guarantee holds while writes survive: not after a crash of the
machine (a changed `boot` shows), nor if a later incarnation packed without writing here (a state
folder put back).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.batches.packed_entries import PackedBatch

RECORD_VERSION = 2
_NUMBERED_BY_SERIES = 1
"""Version whose `acked` holds numbers of another meaning."""


class BadPackerRecord(ValueError):
    """Bytes that this node cannot read as a record: written by a newer node, or damaged.
    Without a record a packer still starts rightly, and flags returned messages without identity.
    """


class Acked(NamedTuple):
    """Last batch of a flow whose messages may have been acknowledged on egress."""

    incarnation: bytes
    sequence: int
    """Number in the whole incarnation."""


@dataclass(frozen=True, slots=True)
class PackerRecord:
    """Progress of the incarnation `incarnation`."""

    incarnation: bytes
    end: int
    """Last whole-incarnation sequence that the log has confirmed."""
    boot: str
    """Identifier of the machine's boot: if changed, unsynced writes may be gone."""
    log_id: bytes = b""
    """Identifier of the log: if changed, the log has lost confirmed batches."""
    read_from: int = 0
    """Log offset behind which everything stands that egress may still hand out."""
    read_after: int = -1
    """Sequence up to which batches of `incarnation` may stand before `read_from`."""
    acked: dict[str, Acked] = field(default_factory=dict)
    """Last acknowledged batch by partition of an exchange. Missing: none was ever acknowledged."""
    in_doubt: frozenset[str] = frozenset()
    """Partitions whose returned messages may have been in the log, and are there no more."""

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": RECORD_VERSION,
                "incarnation": self.incarnation.hex(),
                "end": self.end,
                "boot": self.boot,
                "log_id": self.log_id.hex(),
                "read_from": self.read_from,
                "read_after": self.read_after,
                "acked": {
                    exchange: [acked.incarnation.hex(), acked.sequence]
                    for exchange, acked in self.acked.items()
                },
                "in_doubt": sorted(self.in_doubt),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> PackerRecord:
        """Decode a record. Raises BadPackerRecord."""
        try:
            fields = json.loads(data)
            version = fields["version"]
            if version not in (RECORD_VERSION, _NUMBERED_BY_SERIES):
                raise BadPackerRecord(f"a packer's record of version {version}")
            return cls(
                bytes.fromhex(fields["incarnation"]),
                int(fields["end"]),
                # As after a machine crash: `acked` is not to be relied on.
                str(fields["boot"]) if version == RECORD_VERSION else "",
                bytes.fromhex(fields["log_id"]),
                int(fields["read_from"]),
                int(fields["read_after"]),
                {
                    str(exchange): Acked(bytes.fromhex(incarnation), int(sequence))
                    for exchange, (incarnation, sequence) in fields["acked"].items()
                },
                frozenset(map(str, fields.get("in_doubt", ()))),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadPackerRecord(f"not a packer's record: {error!r}") from error


class PackedThrough(NamedTuple):
    """Batch up to which everything packed has its rows in the ledger."""

    incarnation: bytes
    sequence: int
    """Number in the whole incarnation."""
    before_ms: int
    """Time (this site's clock) before which everything is covered or older; -1: unknown."""


class PackedLedger(Protocol):
    """Store of the packer's record and of the rows of packed batches."""

    def load(self) -> bytes | None:
        """Return the last record, or None if there was none."""
        ...

    def record(self, packed: Sequence[PackedBatch], record: bytes) -> None:
        """Write both atomically, to survive the process's end; a sync is not required.

        An error ends the packer's incarnation: nothing is acknowledged that was not written.
        """
        ...

    async def synced(self) -> None:
        """Return once everything recorded before this call survives a power cut."""
        ...


class MemoryPackedLedger:
    """Twin in memory: survives a packer, and remembers all writes."""

    def __init__(self) -> None:
        self.written: bytes | None = None
        self.packed: list[PackedBatch] = []
        self._on_disk: tuple[bytes | None, int] = (None, 0)

    def load(self) -> bytes | None:
        return self.written

    def record(self, packed: Sequence[PackedBatch], record: bytes) -> None:
        self.packed.extend(packed)
        self.written = record

    async def synced(self) -> None:
        self._on_disk = (self.written, len(self.packed))

    def power_cut(self) -> None:
        """Lose everything not synced."""
        self.written, count = self._on_disk
        del self.packed[count:]
