"""Progress of one flow through the log: its next place, and its intent. Pure.

*Next* is where the flow begins when the node starts: everything before it is settled. *Intent* is
what the deliverer has announced to publish, made durable beforehand. After a crash both together
give exactly the messages in doubt: those of the intent that are not before the next place. They go
out again flagged, and nothing else does.

    announce   before publishing; the state must be on the disk before the first message goes
    withdraw   announced by this process and certainly not sent
    commit     settled: leaves the intent, and next moves on

The intent names its batches singly (there are mostly two to four): "up to this batch" would
need an order among batches that their names do not have, and would flag for ever if that batch fell
off the end of the log.

Bytes, for the store::

    1       version (1)
    1       has a next place; if 1:  place (as `codec` draws it), varint entry
    varint  number of announced batches, then each: name, varint first, varint last
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from relay.batches import varint
from relay.batches.batch import MAX_ENTRIES, BatchName, Place
from relay.state.codec import get_name, get_place, put_name, put_place

FLOW_STATE_VERSION = 1
ANNOUNCED_AT_MOST = 2 * MAX_ENTRIES
"""Most messages of a flow that are announced and not settled: two full batches, of which one is
being confirmed."""
ANNOUNCED_BY_NODES = MAX_ENTRIES
"""Most messages of a flow that are announced and not settled at a site of several nodes, where
takeovers are usual: each upgrade has some."""


class FlowMisuse(Exception):
    """Transition that the flow's rules do not allow, by a mistake in this program; nothing was
    changed.
    """


class BadFlowState(ValueError):
    """Bytes that are no flow state of a known version."""


class Announced(NamedTuple):
    """Entries of a batch from `first` to `last` (exclusive)."""

    name: BatchName
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FlowState:
    """Position of a flow. `entry` counts inside the batch at `next`; if it is that batch's entry
    count, the flow goes on behind the batch. `intent` is in the order of the log.
    """

    next: Place | None = None
    entry: int = 0
    intent: tuple[Announced, ...] = ()

    @property
    def announced(self) -> int:
        """Number of messages that are announced and not settled."""
        return sum(part.last - part.first for part in self.intent)


def announce(state: FlowState, parts: Iterable[Announced]) -> FlowState:
    """Announce entries that are about to be published, in the order of the log.

    Entries that are announced already (in doubt since a crash) stay announced. Raises FlowMisuse
    for an empty part, and for more than MAX_ENTRIES new entries together.
    """
    intent = {part.name: part for part in state.intent}
    new = 0
    for part in parts:
        if not 0 <= part.first < part.last:
            raise FlowMisuse(f"no entries to announce: {part}")
        known = intent.get(part.name)
        if known is None:
            new += part.last - part.first
            intent[part.name] = part
            continue
        joined = Announced(part.name, min(known.first, part.first), max(known.last, part.last))
        new += (joined.last - joined.first) - (known.last - known.first)
        intent[part.name] = joined
    if new > MAX_ENTRIES:
        raise FlowMisuse(f"{new} messages announced at once, at most {MAX_ENTRIES} may be")
    return replace(state, intent=tuple(intent.values()))


def withdraw(state: FlowState, parts: Iterable[Announced]) -> FlowState:
    """Withdraw entries that this very process announced and did not send: they are not in doubt."""
    return replace(state, intent=_without(state.intent, parts))


def commit(state: FlowState, parts: Iterable[Announced], place: Place, entry: int) -> FlowState:
    """Settle entries; the flow goes on at `entry` of the batch at `place`.

    Batches announced before any of them are passed too (a batch in doubt that the log has lost).
    `parts` may name entries that were never announced, since they needed no publishing.
    """
    parts = tuple(parts)
    passed = {part.name for part in parts}
    last = max(
        (index for index, known in enumerate(state.intent) if known.name in passed), default=0
    )
    intent = _without(state.intent[last:], parts)
    return FlowState(place, entry, intent)


def in_doubt(state: FlowState) -> Mapping[BatchName, range]:
    """Entries by batch that may have been published before a crash; these are flagged."""
    return {part.name: range(part.first, part.last) for part in state.intent}


def _without(intent: tuple[Announced, ...], parts: Iterable[Announced]) -> tuple[Announced, ...]:
    """Intent without the parts, one range a batch: parts are cut off a range's begin or end."""
    left = {part.name: part for part in intent}
    for part in parts:
        known = left.get(part.name)
        if known is None:
            continue
        first, last = known.first, known.last
        if part.first <= first:
            first = max(first, part.last)
        elif part.last >= last:
            last = min(last, part.first)
        else:
            raise FlowMisuse(f"{part} is in the middle of what was announced: {known}")
        if first < last:
            left[part.name] = Announced(part.name, first, last)
        else:
            del left[part.name]
    return tuple(left.values())


def encode_flow_state(state: FlowState) -> bytes:
    """Encode as drawn above."""
    out = bytearray([FLOW_STATE_VERSION, state.next is not None])
    if state.next is not None:
        put_place(out, state.next)
        varint.put(out, state.entry)
    varint.put(out, len(state.intent))
    for part in state.intent:
        put_name(out, part.name)
        varint.put(out, part.first)
        varint.put(out, part.last)
    return bytes(out)


def decode_flow_state(data: bytes) -> FlowState:
    """Decode a flow state. Raises BadFlowState."""
    if len(data) < 2 or data[0] != FLOW_STATE_VERSION:
        raise BadFlowState(f"not a flow state of version {FLOW_STATE_VERSION}: {data[:16]!r}")
    place: Place | None = None
    entry = 0
    try:
        at = 2
        if data[1]:
            place, at = get_place(data, at)
            entry, at = varint.get(data, at)
        count, at = varint.get(data, at)
        intent = []
        for _ in range(count):
            name, at = get_name(data, at)
            first, at = varint.get(data, at)
            last, at = varint.get(data, at)
            intent.append(Announced(name, first, last))
    except varint.BadVarint as error:
        raise BadFlowState(str(error)) from error
    if at != len(data):
        raise BadFlowState(f"{len(data) - at} bytes too many")
    return FlowState(place, entry, tuple(intent))
