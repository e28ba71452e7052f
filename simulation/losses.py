"""What a broker has destroyed: it may be missing, and nothing else may.

A broker whose machine loses power may lose the end of its log, which streams do not sync. What
others published is still in its neighbours' logs and comes again, by whichever way is open first:
maybe behind later ones. What its own site published is gone where egress had forgotten it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relay.batches.batch import BatchHeader, BatchKind
from relay.batches.format import BadBatch, decode_entries, read_header
from relay.batches.fragments import message_of
from relay.log.site_log import Record
from simulation.load import which_of

MessageOf = tuple[str, str, int]
"""Exchange, cluster ID of the origin, number."""


def lost_messages(records: list[Record], lost: int) -> Iterator[MessageOf]:
    """The messages of which the last `lost` records have something."""
    headers = [_header(record) for record in records]
    first_piece = {
        header.name: which_of(decode_entries(record.data)[0].body)
        for record, header in zip(records, headers, strict=True)
        if header is not None and header.fragment is not None and header.fragment.piece == 0
    }
    for record, header in list(zip(records, headers, strict=True))[-lost:]:
        if header is None:
            continue
        exchange = header.name.series.exchange
        if header.kind is BatchKind.MESSAGES:
            for entry in decode_entries(record.data):
                yield exchange, *which_of(entry.body)
        elif header.kind is BatchKind.FRAGMENT:
            first, _ = message_of(header)
            if first in first_piece:
                yield exchange, *first_piece[first]


def in_egress(exchange: str, bodies: Iterable[bytes]) -> Iterator[MessageOf]:
    """What waits there will be packed again."""
    for body in bodies:
        yield exchange, *which_of(body)


def _header(record: Record) -> BatchHeader | None:
    try:
        return read_header(record.data)
    except BadBatch:
        return None
