"""Sums by which two ledgers are compared without opening a single identity.

For each row, over the messages that it *counts*:

    messages   number of messages
    identity   two sums, of two independently seeded hashes of each message's identity
    content    the sum of a third hash, of identity and content hash together

A packed row counts all its messages; of a big message in pieces, each of which bears its identity,
the first piece counts it. A delivered row counts the messages whose own outcome is DELIVERED, from
what the broker confirmed. The row of a site's own messages (its `path` has one site, and its batch
is no repair) counts OWN instead, the origin's account of what was packed: no other site has OWN
messages, and such a row has nothing else. Sums add up: the sums of rows that split a batch are
those of the batch, in whatever order.

All numbers are unsigned of 64 bits and wrap (modulo 2^64); the files have them as signed numbers of
the same bits. With `a` and `b` the identity's first and last 8 bytes and `c` the content hash's 8,
each big-endian, and `>>` filling with zeros::

    mix(x):  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
             x = (x ^ (x >> 27)) * 0x94D049BB133111EB
             x =  x ^ (x >> 31)

    hash(seed, a, b)  =  mix(mix(a + seed) + b)

    identity_sum_1  =  sum of hash(0x9E3779B97F4A7C15, a, b)
    identity_sum_2  =  sum of hash(0xD1B54A32D192ED03, a, b)
    content_sum     =  sum of mix(hash(0x8CB92BA72F3D8DD7, a, b) + c)

A sum, never an exclusive or, which forgets whatever comes twice. `mix` is the last step of
splitmix64. The hash is not secret: whoever can choose identities can make sums agree; the ledger is
our own account, and the sums find faults, not liars.

The process that writes the files, which alone loads numpy, computes the sums: nothing of them is on
the way of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from relay.ledger.rows import LedgerRow

SEEDS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)
CONTENT_SEED = 0x8CB92BA72F3D8DD7


class Fingerprint(NamedTuple):
    """Sums of one row as signed numbers of 64 bits. `content` is None where the row has no
    contents.
    """

    messages: int
    identity_1: int
    identity_2: int
    content: int | None


def fingerprints(rows: Sequence[LedgerRow]) -> list[Fingerprint | None]:
    """Fingerprint of each row, or None for a row without single messages. Loads numpy."""
    import numpy as np

    detailed = [row for row in rows if row.identities]
    ends = np.cumsum([row.count for row in detailed], dtype=np.int64)
    identities = np.frombuffer(b"".join([row.identities for row in detailed]), ">u8")
    first, last = identities.astype(np.uint64).reshape(-1, 2).T
    contents = b"".join([row.contents or bytes(8 * row.count) for row in detailed])
    content = np.frombuffer(contents, ">u8").astype(np.uint64)
    counted = _counted(np, detailed)
    one, two = (_sums(np, _hash(np, seed, first, last), counted, ends) for seed in SEEDS)
    both = _mix(np, _hash(np, CONTENT_SEED, first, last) + content)
    three = _sums(np, both, counted, ends)
    counts = _sums(np, np.ones(len(counted), np.uint64), counted, ends)
    made = iter(zip(detailed, counts, one, two, three, strict=True))
    result: list[Fingerprint | None] = []
    for row in rows:
        if not row.identities:
            result.append(None)
            continue
        _, count, identity_1, identity_2, content_sum = next(made)
        result.append(
            Fingerprint(count, identity_1, identity_2, content_sum if row.contents else None)
        )
    return result


def _counted(np: Any, rows: Sequence[LedgerRow]) -> Any:
    """Boolean for each message of these rows: True if the message counts."""
    from relay.batches.batch import BatchKind
    from relay.ledger.rows import OUTCOME_MASK, Outcome, Stage

    outcomes = np.frombuffer(b"".join([row.outcomes or bytes(row.count) for row in rows]), np.uint8)
    outcomes = outcomes & OUTCOME_MASK
    of_own = [len(row.path) == 1 and row.kind != BatchKind.REPAIR for row in rows]
    from_elsewhere = [len(row.path) > 1 or row.kind == BatchKind.REPAIR for row in rows]
    is_packed = [row.stage is Stage.PACKED for row in rows]
    is_first = [row.fragment <= 0 for row in rows]
    counts = [row.count for row in rows]
    delivered = (outcomes == Outcome.DELIVERED) & ~np.repeat(np.array(of_own, bool), counts)
    own = (outcomes == Outcome.OWN) & ~np.repeat(np.array(from_elsewhere, bool), counts)
    packed = np.repeat(np.array(is_packed, bool), counts)
    return np.where(packed, np.repeat(np.array(is_first, bool), counts), delivered | own)


def _hash(np: Any, seed: int, first: Any, last: Any) -> Any:
    return _mix(np, _mix(np, first + np.uint64(seed)) + last)


def _mix(np: Any, x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _sums(np: Any, values: Any, counted: Any, ends: Any) -> list[int]:
    """Signed sums of the counted values between one end and the next."""
    running = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(np.where(counted, values, np.uint64(0)))]
    )
    upto = running[ends]
    before = np.concatenate([np.zeros(1, np.uint64), upto])[: len(upto)]
    sums: list[int] = (upto - before).astype(np.int64).tolist()
    return sums
