"""Proof by the ledger for repairs: was a message really delivered here that the barrier remembers,
or may have forgotten?
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from dedup.generations import is_beyond_window
from dedup.keys import place_prefix, places_of
from relay.delivery.chunk import DeliveryChunk
from relay.delivery.context import DeliveryContext
from relay.ledger_proof import LedgerUnreadable, Sought
from relay.state.codec import encode_name

log = logging.getLogger(__name__)

DAY_MS = 86_400_000


def delivered_early(keys: Collection[bytes], context: DeliveryContext) -> set[bytes]:
    """Keys of messages that were delivered behind an unsettled message: the ledger gets their rows
    only once that message is settled, which may take as long as its queue is full.
    """
    if not keys:
        return set()
    places: set[bytes] = set()
    for name, first, last in context.announced():
        places.update(places_of(place_prefix(encode_name(name)), first, last))
    return {key for key in keys if context.barrier.delivered_from(key) in places}


async def prove(chunk: DeliveryChunk, context: DeliveryContext, *, by_origin: bool) -> None:
    """Fill `chunk.proven` for all messages that the barrier remembers, `chunk.forgotten` for those
    that the barrier may have forgotten. Without an await after the last look at the barrier: the
    judgement follows at once. `by_origin`: the exchange's scope.
    """
    while True:
        pending = chunk.pending()
        keys, hashes = [chunk.keys[n] for n in pending], [chunk.hashes[n] for n in pending]
        remembered = {
            key: pending[index]
            for index, key in context.barrier.remembered(keys, hashes).items()
            if key not in chunk.proven
        }
        early = delivered_early(remembered, context)
        chunk.proven |= dict.fromkeys(early, True)
        remembered = {key: number for key, number in remembered.items() if key not in early}
        forgotten = {
            key: pending[index]
            for index, key in context.barrier.not_remembered(keys, hashes).items()
            if key not in chunk.forgotten and _is_old(chunk, pending[index], context)
        }
        doubtful = [*remembered.values(), *forgotten.values()]
        if not doubtful:
            return
        sought = {number: chunk.sought(number, by_origin=by_origin) for number in doubtful}
        delivered, unknown = await _look_up(chunk, sought, context)
        chunk.not_proven |= unknown
        delivered |= {sought[number] for number in unknown}
        chunk.proven |= {key: sought[n] in delivered for key, n in remembered.items()}
        chunk.forgotten |= {key: sought[n] in delivered for key, n in forgotten.items()}


async def _look_up(
    chunk: DeliveryChunk, sought: Mapping[int, Sought], context: DeliveryContext
) -> tuple[set[Sought], dict[int, str]]:
    """Return the delivered messages, and by number why the ledger could not answer. One question
    covers all, from the oldest message's day on; if rows since then are missing, each day is asked
    separately, so that an old message does not hold back messages of complete days.
    """
    try:
        return set(await _delivered(chunk, sought, context)), {}
    except LedgerUnreadable as error:
        days: dict[int, dict[int, Sought]] = {}
        for number, message in sought.items():
            days.setdefault(chunk.entry(number).published_ms // DAY_MS, {})[number] = message
        if len(days) == 1:
            return set(), _unknown(sought, error)
    delivered: set[Sought] = set()
    unknown: dict[int, str] = {}
    for of_day in days.values():
        try:
            delivered |= await _delivered(chunk, of_day, context)
        except LedgerUnreadable as error:
            unknown |= _unknown(of_day, error)
    return delivered, unknown


async def _delivered(
    chunk: DeliveryChunk, sought: Mapping[int, Sought], context: DeliveryContext
) -> set[Sought]:
    since_ms = min(chunk.entry(number).published_ms for number in sought)
    return await context.delivered_before(sought.values(), since_ms)


def _unknown(sought: Collection[int], error: LedgerUnreadable) -> dict[int, str]:
    log.error(
        "what a repair brought is not delivered, the ledger lacks proof: %s",
        error,
        extra={"event": "repair-without-proof"},
    )
    return dict.fromkeys(sought, str(error))


def _is_old(chunk: DeliveryChunk, number: int, context: DeliveryContext) -> bool:
    origin = chunk.part_of(number).repaired_of
    return is_forgotten_by_now(chunk.entry(number).published_ms, origin, context)


def is_forgotten_by_now(published_ms: int, origin: str, context: DeliveryContext) -> bool:
    """True if a message may have been delivered so long ago that the barrier has forgotten. A slow
    clock at the origin makes the message no younger.
    """
    ahead_ms = max(0, context.clock_differences_ms.get(origin, 0))
    return is_beyond_window(published_ms, context.now_ms(), context.window_ms, ahead_ms)


async def proof_of(
    sought: Sought, key: bytes, origin: str, published_ms: int, context: DeliveryContext
) -> tuple[set[bytes], set[bytes]]:
    """Return, for one message with this barrier key, the keys remembered without a delivery, and
    the keys not remembered although the ledger has a delivery. Judge at once. Raises
    LedgerUnreadable.
    """
    proven: dict[bytes, bool] = {}
    while remembered := context.barrier.remembered([key], [sought.content]):
        known_as = remembered[0]
        if known_as in proven:
            return ({known_as} if not proven[known_as] else set()), set()
        if delivered_early([known_as], context):
            return set(), set()
        delivered = await context.delivered_before([sought], published_ms)
        proven[known_as] = sought in delivered
    forgotten = context.barrier.not_remembered([key], [sought.content])
    if not forgotten or not is_forgotten_by_now(published_ms, origin, context):
        return set(), set()
    if sought in await context.delivered_before([sought], published_ms):
        return set(), {forgotten[0]}
    return set(), set()
