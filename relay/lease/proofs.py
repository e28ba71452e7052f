"""Proofs of holding a lease, from the probes that came back. Pure: no socket, no clock.

The lease is a quorum queue with a single active consumer. Each contender publishes probes at
intervals; only the active consumer gets probes. A contender that gets its own probe back was thus
the active consumer when a majority took the probe, at some time after sending: each proof is dated
by the sending of its probe and holds for `lease_s` from then.

A probe is 16 bytes that name the holder and 8 bytes that number the holder's probes. The newest own
probe is never acknowledged while the lease is held: a successor receives the probe, and so learns
that another contender was the holder, and when the last proof of that holder expires.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOLDER_BYTES = 16
_NUMBER_BYTES = 8
NEVER = float("-inf")


@dataclass(slots=True)
class Proofs:
    """Knowledge of a contender. `holder` is the same for all incarnations which cannot overlap."""

    holder: bytes
    lease_s: float
    _sent: dict[int, float] = field(default_factory=dict)
    _number: int = 0
    _proven_at: float = NEVER
    _given_at: float | None = None
    """Time of the first delivery, or None; before, this contender was not the active consumer."""
    _free_at: float = NEVER
    """Time at which the last proof of a former holder expires."""

    def __post_init__(self) -> None:
        if len(self.holder) != HOLDER_BYTES:
            raise ValueError(f"a holder's name has {HOLDER_BYTES} bytes, not {len(self.holder)}")

    def probe(self, now: float) -> bytes:
        """Return the body of the next probe, which is sent now."""
        self._number += 1
        self._sent[self._number] = now
        # Probes older than a lease prove nothing any more.
        for number in [n for n, sent in self._sent.items() if sent < now - self.lease_s]:
            del self._sent[number]
        return self.holder + self._number.to_bytes(_NUMBER_BYTES)

    def given(self, body: bytes, *, redelivered: bool, now: float) -> bool:
        """Take in a delivery. Returns True for a recent probe of this contender."""
        if self._given_at is None:
            self._given_at = now
        if body[:HOLDER_BYTES] != self.holder:
            if redelivered:
                # The former holder's last probe was sent before this contender became active.
                self._free_at = max(self._free_at, now + self.lease_s)
            return False
        sent = self._sent.pop(int.from_bytes(body[HOLDER_BYTES:]), None)
        if sent is None:
            return False
        # An own probe sent before the first delivery may arrive before a former holder's.
        if sent >= self._given_at:
            self._proven_at = max(self._proven_at, sent)
        return True

    @property
    def has_probes_under_way(self) -> bool:
        """True while a probe sent lately has not come back."""
        return bool(self._sent)

    @property
    def expires_at(self) -> float:
        """Time until which the lease is proven."""
        return self._proven_at + self.lease_s

    def is_held(self, now: float) -> bool:
        """True if this contender may act as the holder."""
        return self._free_at <= now < self.expires_at
