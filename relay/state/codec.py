"""Flows, series, names and places as bytes for the store.

::

    flow    text origin, text exchange, varint lane
    series  text origin, 8 incarnation, text exchange, varint lane,
            varint number of destinations, then each: text
    name    series, varint sequence
    place   varint offset, name

A text is a varint length and UTF-8. The same value always gives the same bytes, so that they serve
as keys. (`name_set` draws the table for many series at once.)
"""

from __future__ import annotations

from functools import lru_cache

from relay.batches import varint
from relay.batches.batch import BatchName, Flow, Place, Series
from relay.batches.name_set import INCARNATION_BYTES


@lru_cache(maxsize=4096)
def encode_series(series: Series) -> bytes:
    """Encode a series; cached, since the same few hundred come with every commit."""
    if len(series.incarnation) != INCARNATION_BYTES:
        raise ValueError(f"an incarnation has {INCARNATION_BYTES} bytes: {series}")
    out = bytearray()
    varint.put_text(out, series.origin)
    out += series.incarnation
    varint.put_text(out, series.exchange)
    varint.put(out, series.lane)
    varint.put(out, len(series.destinations))
    for destination in series.destinations:
        varint.put_text(out, destination)
    return bytes(out)


def get_series(data: bytes, at: int) -> tuple[Series, int]:
    """Return the series at `at`, and the end of its bytes. Raises BadVarint."""
    origin, at = varint.get_text(data, at)
    incarnation = bytes(data[at : at + INCARNATION_BYTES])
    if len(incarnation) < INCARNATION_BYTES:
        raise varint.BadVarint("cut off")
    exchange, at = varint.get_text(data, at + INCARNATION_BYTES)
    lane, at = varint.get(data, at)
    count, at = varint.get(data, at)
    destinations = []
    for _ in range(count):
        destination, at = varint.get_text(data, at)
        destinations.append(destination)
    return Series(origin, incarnation, exchange, lane, tuple(destinations)), at


def put_name(out: bytearray, name: BatchName) -> None:
    out += encode_series(name.series)
    varint.put(out, name.sequence)


def encode_name(name: BatchName) -> bytes:
    """Encode a batch's name on its own, as the barrier's places are made from."""
    out = bytearray()
    put_name(out, name)
    return bytes(out)


def get_name(data: bytes, at: int) -> tuple[BatchName, int]:
    """Return the name at `at`, and the end of its bytes. Raises BadVarint."""
    series, at = get_series(data, at)
    sequence, at = varint.get(data, at)
    return BatchName(series, sequence), at


def put_place(out: bytearray, place: Place) -> None:
    varint.put(out, place.offset)
    put_name(out, place.name)


def encode_place(place: Place) -> bytes:
    out = bytearray()
    put_place(out, place)
    return bytes(out)


def get_place(data: bytes, at: int) -> tuple[Place, int]:
    """Return the place at `at`, and the end of its bytes. Raises BadVarint."""
    offset, at = varint.get(data, at)
    name, at = get_name(data, at)
    return Place(offset, name), at


def encode_flow(flow: Flow) -> bytes:
    out = bytearray()
    varint.put_text(out, flow.origin)
    varint.put_text(out, flow.exchange)
    varint.put(out, flow.lane)
    return bytes(out)


def get_flow(data: bytes, at: int) -> tuple[Flow, int]:
    """Return the flow at `at`, and the end of its bytes. Raises BadVarint."""
    origin, at = varint.get_text(data, at)
    exchange, at = varint.get_text(data, at)
    lane, at = varint.get(data, at)
    return Flow(origin, exchange, lane), at
