"""Deferred messages of one batch, which their flow has passed: kept until each is settled. Pure.

A flow with `order: best_effort` goes on behind a message that the site's broker refuses. The flow's
next place then says nothing of the message any more; this record does. After a restart the flow
meets the batch again, whose name is not settled, and delivers these entries alone.

Bytes, for the store::

    1       version (1)
    varint  number of entries, then each: varint distance to the entry before,
            varint attempts (0: never handed to the broker; else refusals + 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from relay.batches import varint

DEFERRED_VERSION = 1


class BadDeferredEntries(ValueError):
    """Bytes that are no record of a known version."""


class DeferredEntry(NamedTuple):
    """Deferred message. `number` counts in its batch, `refusals` the broker's refusals so far."""

    number: int
    refusals: int
    was_sent: bool
    """True if the broker may have the message: every further attempt is flagged."""


def encode_deferred(entries: Sequence[DeferredEntry]) -> bytes:
    """Encode as drawn above. `entries` are in the order of the batch."""
    out = bytearray([DEFERRED_VERSION])
    varint.put(out, len(entries))
    before = 0
    for number, refusals, was_sent in entries:
        varint.put(out, number - before)
        varint.put(out, refusals + 1 if was_sent else 0)
        before = number
    return bytes(out)


def decode_deferred(data: bytes) -> tuple[DeferredEntry, ...]:
    """Decode a record. Raises BadDeferredEntries."""
    if not data or data[0] != DEFERRED_VERSION:
        raise BadDeferredEntries(
            f"no deferred entries of version {DEFERRED_VERSION}: {data[:16]!r}"
        )
    entries = []
    number = 0
    try:
        count, at = varint.get(data, 1)
        for _ in range(count):
            distance, at = varint.get(data, at)
            attempts, at = varint.get(data, at)
            number += distance
            entries.append(DeferredEntry(number, max(0, attempts - 1), attempts > 0))
    except varint.BadVarint as error:
        raise BadDeferredEntries(str(error)) from error
    if at != len(data):
        raise BadDeferredEntries(f"{len(data) - at} bytes too many")
    return tuple(entries)
