"""Series as bytes, each written once: names then refer to them by number.

::

    varint  number of texts, then each: varint length, UTF-8
    varint  number of series, then each:
              varint  origin (number of the text)        8  incarnation
              varint  exchange (number of the text)      varint  lane
              varint  number of destinations, then each: varint number of the text

Cluster IDs and exchanges recur in hundreds of series; a table of texts keeps a set of names that
crosses the WAN at every welcome small.
"""

from __future__ import annotations

from collections.abc import Iterable

from relay.batches import varint
from relay.batches.batch import Series

INCARNATION_BYTES = 8


def put_series(out: bytearray, all_series: Iterable[Series]) -> None:
    """Append the table. Series are numbered in the order given, from 0."""
    texts: dict[str, int] = {}
    body = bytearray()
    count = 0
    for series in all_series:
        if len(series.incarnation) != INCARNATION_BYTES:
            raise ValueError(f"an incarnation has {INCARNATION_BYTES} bytes: {series}")
        count += 1
        varint.put(body, texts.setdefault(series.origin, len(texts)))
        body += series.incarnation
        varint.put(body, texts.setdefault(series.exchange, len(texts)))
        varint.put(body, series.lane)
        varint.put(body, len(series.destinations))
        for destination in series.destinations:
            varint.put(body, texts.setdefault(destination, len(texts)))
    varint.put(out, len(texts))
    for text in texts:
        varint.put_text(out, text)
    varint.put(out, count)
    out += body


def get_series(data: bytes, at: int) -> tuple[list[Series], int]:
    """The table at `at`, and where the next thing begins. Raises BadVarint (a ValueError)."""
    text_count, at = varint.get(data, at)
    texts: list[str] = []
    for _ in range(text_count):
        text, at = varint.get_text(data, at)
        texts.append(text)
    series_count, at = varint.get(data, at)
    result: list[Series] = []
    for _ in range(series_count):
        origin, at = _get_word(data, at, texts)
        incarnation = data[at : at + INCARNATION_BYTES]
        if len(incarnation) < INCARNATION_BYTES:
            raise varint.BadVarint("cut off")
        exchange, at = _get_word(data, at + INCARNATION_BYTES, texts)
        lane, at = varint.get(data, at)
        destination_count, at = varint.get(data, at)
        destinations = []
        for _ in range(destination_count):
            destination, at = _get_word(data, at, texts)
            destinations.append(destination)
        result.append(Series(origin, bytes(incarnation), exchange, lane, tuple(destinations)))
    return result, at


def _get_word(data: bytes, at: int, texts: list[str]) -> tuple[str, int]:
    number, at = varint.get(data, at)
    if number >= len(texts):
        raise varint.BadVarint(f"text {number} of {len(texts)}")
    return texts[number], at
