"""What a repair brings and the barrier remembers: was it really delivered here? The ledger says."""

from __future__ import annotations

import logging
from collections.abc import Collection

from dedup.keys import place_prefix, places_of
from relay.delivery.chunk import Chunk
from relay.delivery.context import DeliveryContext
from relay.ledger.proof import LedgerUnreadable, Sought
from relay.state.codec import encode_name

log = logging.getLogger(__name__)


def delivered_early(keys: Collection[bytes], context: DeliveryContext) -> set[bytes]:
    """Those that were delivered behind a message which is not settled yet: the ledger has their
    rows only once that one is, which may take as long as its queue is full.
    """
    if not keys:
        return set()
    places: set[bytes] = set()
    for name, first, last in context.announced():
        places.update(places_of(place_prefix(encode_name(name)), first, last))
    return {key for key in keys if context.barrier.delivered_from(key) in places}


async def prove(chunk: Chunk, context: DeliveryContext, *, by_origin: bool) -> None:
    """Fill `chunk.proven` for all that the barrier remembers. Without an await after the last look
    at the barrier: the judgement follows at once. `by_origin`: the exchange's scope.
    """
    while True:
        pending = chunk.pending()
        keys, hashes = [chunk.keys[n] for n in pending], [chunk.hashes[n] for n in pending]
        remembered = context.barrier.remembered(keys, hashes)
        asked = {
            key: chunk.sought(pending[index], by_origin=by_origin)
            for index, key in remembered.items()
            if key not in chunk.proven
        }
        early = delivered_early(asked, context)
        chunk.proven |= dict.fromkeys(early, True)
        asked = {key: sought for key, sought in asked.items() if key not in early}
        if not asked:
            return
        since_ms = min(chunk.entries[n].published_ms for n in pending)
        try:
            delivered = await context.delivered_before(asked.values(), since_ms)
        except LedgerUnreadable as error:
            log.error("the ledger cannot be looked through, nothing is repeated: %s", error)
            delivered = set(asked.values())
        chunk.proven |= {key: sought in delivered for key, sought in asked.items()}


async def unproven_of(
    sought: Sought, key: bytes, since_ms: int, context: DeliveryContext
) -> set[bytes]:
    """Of one message with this barrier key: the key under which it is remembered without a
    delivery, if it is. Judge at once. Raises LedgerUnreadable.
    """
    proven: dict[bytes, bool] = {}
    while remembered := context.barrier.remembered([key], [sought.content]):
        known_as = remembered[0]
        if known_as in proven:
            break
        if delivered_early([known_as], context):
            return set()
        delivered = await context.delivered_before([sought], since_ms)
        proven[known_as] = sought in delivered
    return {known_as for known_as, was in proven.items() if not was}
