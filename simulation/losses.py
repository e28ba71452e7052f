"""What a broker has destroyed: it may be missing, and nothing else may.

Retention eats a log from its head. What somebody still needed of that is destroyed once the
operator has accepted the gap that was told of it: what goes missing without such a word is lost.

A broker whose machine loses power may lose the end of its log, which streams do not sync. What
others published is still in its neighbours' logs and comes again, by whichever way is open first:
maybe behind later ones; what retention has eaten there does not. What its own site published is
gone where egress had forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import BadBatch, decode_entries, read_header
from relay.batches.fragments import message_of
from relay.links.forwarding import Forwarding, Verdict
from relay.log.site_log import Record
from simulation.load import which_of

MessageOf = tuple[str, str, int]
"""Exchange, cluster ID of the origin, number."""


class Eaten(NamedTuple):
    """A record that retention ate, and the messages of which it had something."""

    offset: int
    name: BatchName
    messages: frozenset[MessageOf]


class Head:
    """What retention ate of one log."""

    def __init__(self) -> None:
        self._first_pieces: dict[BatchName, tuple[str, int]] = {}
        self._eaten: list[Eaten] = []

    def eaten(self, records: Iterable[Record]) -> None:
        """These are about to go."""
        for record in records:
            header = _header(record)
            if header is not None:
                found = frozenset(_messages(record, header, self._first_pieces))
                self._eaten.append(Eaten(record.offset, header.name, found))

    @property
    def messages(self) -> set[MessageOf]:
        """Of which it ate something."""
        return {message for one in self._eaten for message in one.messages}

    def between(self, after: int, before: int) -> list[Eaten]:
        """Those with an offset between these two."""
        return [one for one in self._eaten if after < one.offset < before]


def lost_messages(records: list[Record], lost: int) -> Iterator[MessageOf]:
    """The messages of which the last `lost` records have something."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    for number, record in enumerate(records, lost - len(records)):
        header = _header(record)
        if header is None:
            continue
        found = list(_messages(record, header, first_pieces))
        if number >= 0:
            yield from found


def messages_to_send(records: Iterable[Record], forwarding: Forwarding) -> Iterator[MessageOf]:
    """The messages of which these have something that goes over a link."""
    first_pieces: dict[BatchName, tuple[str, int]] = {}
    for record in records:
        header = _header(record)
        if header is not None and forwarding.decide(header) is Verdict.SEND:
            yield from _messages(record, header, first_pieces)


def names_of(records: Iterable[Record]) -> Iterator[BatchName]:
    """Of those that are batches."""
    for record in records:
        header = _header(record)
        if header is not None:
            yield header.name


def in_egress(exchange: str, bodies: Iterable[bytes]) -> Iterator[MessageOf]:
    """What waits there will be packed again."""
    for body in bodies:
        yield exchange, *which_of(body)


def _messages(
    record: Record, header: BatchHeader, first_pieces: dict[BatchName, tuple[str, int]]
) -> Iterator[MessageOf]:
    """Those of which it has something. Adds to `first_pieces`: only these say whose they are."""
    exchange = header.name.series.exchange
    if header.kind is BatchKind.MESSAGES:
        for entry in decode_entries(record.data):
            yield exchange, *which_of(entry.body)
    elif header.kind is BatchKind.FRAGMENT:
        first, _ = message_of(header)
        if first == header.name:
            first_pieces[first] = which_of(decode_entries(record.data)[0].body)
        if first in first_pieces:
            yield exchange, *first_pieces[first]


def _header(record: Record) -> BatchHeader | None:
    try:
        return read_header(record.data)
    except BadBatch:
        return None
