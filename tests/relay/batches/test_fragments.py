"""Big messages: cut, and put together from whatever copies came."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import pytest

from relay.batches.batch import BatchHeader, BatchKind, BatchName, Entry, Fragment, Series
from relay.batches.format import append_to_path, seal
from relay.batches.fragments import (
    MAX_UNFINISHED,
    PIECE_BYTES,
    FragmentAssembly,
    FragmentMismatch,
    split,
)
from relay.log.rabbit.stream_appends import StreamAppends

SERIES = Series("paris", b"incarna1", "orders", 0, ())
BODY = bytes(range(256)) * 10_000  # 2.5 MB: four pieces
ENTRY = Entry(b"i" * 16, b"key", b"\0\0", BODY, 5, 7)


def header(sequence: int, fragment: Fragment | None, series: Series = SERIES) -> BatchHeader:
    name = BatchName(series, sequence)
    return BatchHeader(
        BatchKind.FRAGMENT, name, sequence + 2, (), "r", 1, 0, 0, 0, 0, 0, ("paris",), fragment
    )


def pieces_at(sequence: int, entry: Entry = ENTRY) -> list[tuple[BatchHeader, Entry]]:
    return [
        (header(sequence + fragment.piece, fragment), piece) for fragment, piece in split(entry)
    ]


def test_pieces_have_the_whole_message_but_for_its_body() -> None:
    pieces = list(split(ENTRY))
    assert [fragment for fragment, _ in pieces] == [Fragment(n, 4) for n in range(4)]
    assert all(piece._replace(body=BODY) == ENTRY for _, piece in pieces)
    assert [len(piece.body) for _, piece in pieces[:3]] == [PIECE_BYTES] * 3
    assert b"".join(piece.body for _, piece in pieces) == BODY


def test_an_empty_body_under_huge_properties_is_one_piece() -> None:
    entry = ENTRY._replace(body=b"")
    ((fragment, piece),) = split(entry)
    assert fragment == Fragment(0, 1)
    assert FragmentAssembly().add(header(0, fragment), piece) == entry


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_a_message_is_complete_with_its_last_piece_in_any_order(order: tuple[int, ...]) -> None:
    pieces = pieces_at(10)
    assembly = FragmentAssembly()
    results = [assembly.add(*pieces[n]) for n in order]
    assert results[:3] == [None] * 3
    assert results[3] == ENTRY
    assert assembly.bytes_held == 0
    assert assembly.unfinished == []


def test_copies_by_another_path_change_nothing() -> None:
    pieces = pieces_at(10)
    assembly = FragmentAssembly()
    for piece in (*pieces[:3], *pieces[:3]):
        assert assembly.add(*piece) is None
    assert assembly.bytes_held == 3 * PIECE_BYTES
    assert assembly.add(*pieces[3]) == ENTRY


def test_pieces_of_two_messages_may_come_between_each_other() -> None:
    other = ENTRY._replace(body=BODY[::-1])
    assembly = FragmentAssembly()
    whole = []
    for one, two in zip(pieces_at(10), pieces_at(14, other), strict=True):
        whole += [assembly.add(*one), assembly.add(*two)]
    assert whole[-2:] == [ENTRY, other]


def test_a_later_incarnation_ends_what_an_earlier_one_left_unfinished() -> None:
    assembly = FragmentAssembly()
    for piece in pieces_at(10)[:2]:
        assembly.add(*piece)
    assert assembly.abandon_earlier(SERIES.flow, SERIES.incarnation) == []
    assert assembly.abandon_earlier(SERIES.flow._replace(exchange="prices"), b"incarna2") == []
    assert assembly.abandon_earlier(SERIES.flow, b"incarna2") == [BatchName(SERIES, 10)]
    assert assembly.bytes_held == 0


def test_pieces_that_cannot_be_right_are_refused_by_name() -> None:
    assembly = FragmentAssembly()
    with pytest.raises(FragmentMismatch, match="without fragment numbers"):
        assembly.add(header(3, None), ENTRY)
    with pytest.raises(FragmentMismatch, match="cannot stand here"):
        assembly.add(header(0, Fragment(1, 2)), ENTRY)
    assembly.add(header(5, Fragment(0, 2)), ENTRY)
    with pytest.raises(FragmentMismatch, match="piece of 3 of a message of 2 pieces") as refused:
        assembly.add(header(6, Fragment(1, 3)), ENTRY)
    assert refused.value.name.sequence == 6


def test_the_largest_piece_still_fits_a_frame_of_the_log_after_the_longest_way() -> None:
    # It bears key and properties of the whole message, and its path grows at every site.
    sites = tuple(f"{number:063}" for number in range(500))
    whole = ENTRY._replace(
        routing_key=b"k" * 255,
        properties=os.urandom(128 * 1024),
        body=os.urandom(PIECE_BYTES + 1),
    )
    fragment, piece = next(split(whole))
    series = SERIES._replace(destinations=sites)
    _, data = seal(replace(header(0, fragment, series), path=sites[:1]), [piece])
    for site in sites[1:]:
        data = append_to_path(data, site)
    frame_bytes = 1024 * 1024  # RabbitMQ's own stream.frame_max
    assert len(data) <= StreamAppends(0, frame_bytes, lambda data: None).max_record_bytes


def test_pieces_of_messages_that_never_end_are_held_only_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.batches.fragments.MAX_HELD_BYTES", 10_000)
    assembly = FragmentAssembly()
    piece = ENTRY._replace(body=bytes(3_000))
    for number in range(3):
        assembly.add(header(10 * number, Fragment(0, 2)), piece)
    with pytest.raises(FragmentMismatch, match="too many bytes"):
        assembly.add(header(30, Fragment(0, 2)), piece)
    assert assembly.bytes_held == 9_000
    assert assembly.add(header(1, Fragment(1, 2)), ENTRY._replace(body=b"end")) is not None
    assert assembly.bytes_held == 6_000


def test_messages_without_a_byte_are_not_begun_without_end() -> None:
    assembly = FragmentAssembly()
    nothing = ENTRY._replace(body=b"")
    for number in range(MAX_UNFINISHED):
        assembly.add(header(10 * number, Fragment(0, 2)), nothing)
    with pytest.raises(FragmentMismatch, match="too many messages"):
        assembly.add(header(10 * MAX_UNFINISHED, Fragment(0, 2)), nothing)
    assert len(assembly.unfinished) == MAX_UNFINISHED
