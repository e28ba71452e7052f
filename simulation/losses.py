"""Losses of brokers: messages that a broker has destroyed may be missing, and no others.

Retention eats a log from its head. A needed message of the head is destroyed once the operator has
accepted the reported gap; a message missing without a reported gap is lost.

A broker whose machine loses power may lose the end of its log, which streams do not sync. Others'
messages are still in the neighbours' logs, unless retention has eaten them there, and come again by
the way that opens first: maybe behind later ones. Messages of the own site are gone where egress
had forgotten them. Where another site has the first pieces of such a message, its node counts them
as undelivered, and what is behind them, until something newer comes of the same flow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import BadBatch, decode_entries, read_header
from relay.batches.fragments import message_of
from relay.links.forwarding import Forwarding, ForwardingDecision
from relay.log.site_log import Record
from simulation.load import origin_and_number

MessageOf = tuple[str, str, int]
"""Message by exchange, cluster ID of the origin, and number."""


class EatenRecord(NamedTuple):
    """Record eaten by retention, and the messages of which it held a part."""

    offset: int
    name: BatchName
    messages: frozenset[MessageOf]


class EatenHead:
    """Head of one log, as far as retention has eaten it."""

    def __init__(self) -> None:
        self._first_pieces: dict[BatchName, tuple[str, int]] = {}
        self._eaten: list[EatenRecord] = []

    def eaten(self, records: Iterable[Record]) -> None:
        """Note records that are about to go."""
        for record in records:
            header = _header(record)
            if header is not None:
                found = frozenset(_messages(record, header, self._first_pieces))
                self._eaten.append(EatenRecord(record.offset, header.name, found))

    @property
    def messages(self) -> set[MessageOf]:
        """Messages of which a part was eaten."""
        return {message for one in self._eaten for message in one.messages}

    def between(self, after: int, before: int) -> list[EatenRecord]:
        """Return the eaten records with an offset between the two."""
        return [one for one in self._eaten if after < one.offset < before]


def lost_messages(records: list[Record], lost: int) -> Iterator[MessageOf]:
    """Yield the messages of which the last `lost` records hold a part."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    for number, record in enumerate(records, lost - len(records)):
        header = _header(record)
        if header is None:
            continue
        found = list(_messages(record, header, first_pieces))
        if number >= 0:
            yield from found


def messages_in(records: Iterable[Record], name: BatchName) -> set[MessageOf]:
    """Return the messages of which the batch of this name holds a part."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    found: set[MessageOf] = set()
    for record in records:
        header = _header(record)
        if header is not None:
            messages = set(_messages(record, header, first_pieces))
            found |= messages if header.name == name else set()
    return found


def in_part(records: Iterable[Record]) -> set[MessageOf]:
    """Return the messages of which the records hold the first piece and not all."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    lacking: dict[MessageOf, set[int]] = {}
    for record in records:
        header = _header(record)
        if header is None or header.fragment is None:
            continue
        for message in _messages(record, header, first_pieces):
            pieces = lacking.setdefault(message, set(range(header.fragment.pieces)))
            pieces.discard(header.fragment.piece)
    return {message for message, pieces in lacking.items() if pieces}


def messages_to_send(records: Iterable[Record], forwarding: Forwarding) -> Iterator[MessageOf]:
    """Yield the messages of which the records hold a part that goes over a link."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    for record in records:
        header = _header(record)
        if header is not None and forwarding.decide(header) is ForwardingDecision.SEND:
            yield from _messages(record, header, first_pieces)


def names_of(records: Iterable[Record]) -> Iterator[BatchName]:
    """Yield the names of the records that are batches."""
    for record in records:
        header = _header(record)
        if header is not None:
            yield header.name


def egress_messages(exchange: str, bodies: Iterable[bytes]) -> Iterator[MessageOf]:
    """Yield the messages in an egress queue, which will be packed again, but for those that came by
    delivery without their bodies.
    """
    for body in filter(None, bodies):
        yield exchange, *origin_and_number(body)


def _messages(
    record: Record, header: BatchHeader, first_pieces: dict[BatchName, tuple[str, int]]
) -> Iterator[MessageOf]:
    """Yield the messages of which a record holds a part, and add to `first_pieces`: only the first
    piece of a message identifies it.
    """
    exchange = header.name.series.exchange
    if header.kind is BatchKind.MESSAGES:
        for entry in decode_entries(record.data):
            yield exchange, *origin_and_number(entry.body)
    elif header.kind is BatchKind.FRAGMENT:
        first, _ = message_of(header)
        if first == header.name:
            first_pieces[first] = origin_and_number(decode_entries(record.data)[0].body)
        if first in first_pieces:
            yield exchange, *first_pieces[first]


def _header(record: Record) -> BatchHeader | None:
    try:
        return read_header(record.data)
    except BadBatch:
        return None
