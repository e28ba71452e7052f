"""What a packer leaves behind for its successor, and the seam to where it is kept.

The record is written *before* the acknowledgements that it speaks of are sent, so what it does not
mention was certainly not acknowledged. That holds while writes survive: not after a crash of the
machine (`boot` tells), nor if a later run packed without writing here (a state folder put back).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from relay.batches.batch import PackedBatch

RECORD_VERSION = 2
_NUMBERED_BY_SERIES = 1
"""That version told of `acked` by numbers which mean something else now."""


class BadPackerRecord(ValueError):
    """These bytes are no record that this node can read: of a newer node, or damaged. Without it
    a packer still starts rightly, and flags what of the messages without identity comes back.
    """


class Acked(NamedTuple):
    """A flow's last batch whose messages may have been acknowledged on egress."""

    incarnation: bytes
    sequence: int
    """In the whole incarnation."""


@dataclass(frozen=True, slots=True)
class PackerRecord:
    """How far the run `incarnation` had got."""

    incarnation: bytes
    end: int
    """The last whole-incarnation sequence that the log has confirmed."""
    boot: str
    """Identifies the machine's boot: another one now, and unsynced writes may be gone."""
    log_id: bytes = b""
    """Another one now, and the log has lost something that it had confirmed."""
    read_from: int = 0
    """The log offset from which on everything stands that egress may still hand out."""
    read_after: int = -1
    """Batches of `incarnation` up to this sequence may stand before `read_from`."""
    acked: dict[str, Acked] = field(default_factory=dict)
    """By exchange. One that is missing: nothing of it was ever acknowledged."""
    in_doubt: frozenset[str] = frozenset()
    """Exchanges of which what comes again may have been in the log, though it is not now."""

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
        """Raises BadPackerRecord."""
        try:
            told = json.loads(data)
            version = told["version"]
            if version not in (RECORD_VERSION, _NUMBERED_BY_SERIES):
                raise BadPackerRecord(f"a packer's record of version {version}")
            return cls(
                bytes.fromhex(told["incarnation"]),
                int(told["end"]),
                # As after a crash of the machine: what was acknowledged is not to be relied on.
                str(told["boot"]) if version == RECORD_VERSION else "",
                bytes.fromhex(told["log_id"]),
                int(told["read_from"]),
                int(told["read_after"]),
                {
                    str(exchange): Acked(bytes.fromhex(incarnation), int(sequence))
                    for exchange, (incarnation, sequence) in told["acked"].items()
                },
                frozenset(map(str, told.get("in_doubt", ()))),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadPackerRecord(f"not a packer's record: {error!r}") from error


class PackedThrough(NamedTuple):
    """Up to where all that was packed has its rows in the ledger."""

    incarnation: bytes
    sequence: int
    """In the whole incarnation."""
    before_ms: int
    """Whatever was published before then, by this site's clock, is among it, or was before this
    incarnation; -1: nobody can say."""


class PackedLedger(Protocol):
    """Where the packer keeps its record, and tells the ledger what it packed."""

    def load(self) -> bytes | None:
        """The record that was written last; None if there was none."""
        ...

    def record(self, packed: Sequence[PackedBatch], record: bytes) -> None:
        """One atomic write of both; it survives the process's end, it need not be synced.

        What it raises ends the packer's run: nothing is acknowledged that was not written.
        """
        ...

    async def synced(self) -> None:
        """Return once what was recorded before this call survives a power cut."""
        ...


class MemoryPackedLedger:
    """The twin in memory: survives a packer, and knows what it was told."""

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
        """What was not synced is gone."""
        self.written, count = self._on_disk
        del self.packed[count:]
