"""Batches as an attacker at a neighbour's relay would write them: digest right, all else a lie."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given, settings

from relay.batches.batch import (
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Fragment,
    HeaderField,
    Predecessor,
    Series,
)
from relay.batches.format import (
    MAX_BLOCK_BYTES,
    MAX_FIELDS,
    MAX_HEADER_BYTES,
    MAX_NUMBER,
    MAX_PATH_SITES,
    MAX_PIECES,
    MAX_TIME_MS,
    BadBatch,
    UnknownFormat,
    append_to_path,
    decode_entries,
    read_header,
    seal,
    verify_digest,
)
from relay.batches.name_set import NameSet
from relay.ledger.batch_rows import linked_row
from relay.ledger.rows import Stage, decode_row, encode_row
from relay.links.receiver.actions import Append, LogFacts, Quarantine
from relay.links.receiver.machine import LinkReceiver
from relay.links.wire import encode_ask, encode_batch_frame
from relay.state.node_state import Commit
from tests.hostile.mutations import mutated

SERIES = Series("lyon", b"incarnat", "orders", 0, ("tokyo",))
HEADER = BatchHeader(
    BatchKind.MESSAGES, BatchName(SERIES, 7), 12, (), "r1", 0, 0, 0, 0, 0, 0, ("lyon", "paris"),
    format=2, fields=(HeaderField(7, b"later"),),
)  # fmt: skip
ENTRIES = [Entry(bytes([n]) * 16, b"key", b"\0\0", b"body", 9) for n in range(3)]
_, VALID = seal(HEADER, ENTRIES)
RUN, NONCE = b"r" * 8, b"n" * 8


@given(mutated(VALID, after=b"ISB\2"))
@settings(max_examples=400, deadline=None)
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    for read in (
        read_header,
        verify_digest,
        decode_entries,
        lambda data: append_to_path(data, "me"),
    ):
        try:
            read(data)
        except (BadBatch, UnknownFormat):
            continue


def test_every_header_that_ends_too_early_is_refused() -> None:
    path_bytes, header_bytes = struct.unpack_from(">HI", VALID, 4)
    whole_field = 3 + len(b"later")
    for less in {*range(1, header_bytes + 1)} - {whole_field}:
        with pytest.raises(BadBatch):
            read_header(
                VALID[:4] + struct.pack(">HI", path_bytes, header_bytes - less) + VALID[10:]
            )


LIES = [
    replace(HEADER, name=BatchName(SERIES, 2**64 - 1)),
    replace(HEADER, name=BatchName(SERIES, MAX_NUMBER + 1)),
    replace(HEADER, incarnation_sequence=2**64 - 1),
    replace(HEADER, predecessors=(Predecessor(bytes(8), -2),)),
    replace(HEADER, predecessors=(Predecessor(bytes(8), 7), Predecessor(bytes(8), -(2**63)))),
    replace(HEADER, total_messages=2**63),
    replace(HEADER, total_bytes=2**63),
    replace(HEADER, first_published_ms=MAX_TIME_MS + 1),
    replace(HEADER, last_published_ms=2**63),
    replace(HEADER, kind=BatchKind.FRAGMENT, fragment=Fragment(0, 2**32 - 1)),
    replace(HEADER, kind=BatchKind.FRAGMENT, fragment=Fragment(2**31, MAX_PIECES + 1)),
]


@pytest.mark.parametrize("lie", LIES)
def test_what_no_ledger_can_hold_is_no_batch(lie: BatchHeader) -> None:
    with pytest.raises(BadBatch):
        read_header(seal(lie, [])[1])


def test_the_greatest_that_is_believed_fits_into_what_is_written_down_of_it() -> None:
    most = replace(
        HEADER,
        name=BatchName(SERIES, MAX_NUMBER),
        incarnation_sequence=MAX_NUMBER,
        total_messages=MAX_NUMBER,
        total_bytes=MAX_NUMBER,
        first_published_ms=MAX_TIME_MS,
        last_published_ms=MAX_TIME_MS,
        predecessors=(Predecessor(bytes(8), -1), Predecessor(bytes(8), MAX_NUMBER)),
        kind=BatchKind.FRAGMENT,
        fragment=Fragment(MAX_PIECES - 1, MAX_PIECES),
    )
    header = read_header(seal(most, [])[1])
    row = linked_row(header, Stage.LINKED_IN, "paris", 1)
    assert decode_row(encode_row(row)) == row
    Commit().void("lyon", header.predecessors)
    names = NameSet()
    names.add(header.name)
    assert NameSet.decode(names.encode()) == names


def peak_of(data: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(BadBatch):
            decode_entries(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def with_header_behind(more: bytes) -> bytes:
    """The valid batch, its header section longer by `more`."""
    path_bytes, header_bytes = struct.unpack_from(">HI", VALID, 4)
    end = 10 + path_bytes + header_bytes
    prefix = VALID[:4] + struct.pack(">HI", path_bytes, header_bytes + len(more))
    return prefix + VALID[10:end] + more + VALID[end:]


@pytest.mark.parametrize("count", [MAX_FIELDS, MAX_HEADER_BYTES])
def test_empty_fields_without_end_cost_no_memory(count: int) -> None:
    data = with_header_behind(b"\7\0\0" * count)
    assert peak_of(data) < 3 * MAX_HEADER_BYTES


def test_a_block_that_lies_about_its_size_costs_no_more_than_it_says() -> None:
    path_bytes, header_bytes = struct.unpack_from(">HI", VALID, 4)
    head = VALID[: 10 + path_bytes + header_bytes]
    plain = bytes(MAX_BLOCK_BYTES + 1)
    bombs = [
        zstandard.ZstdCompressor().compress(plain),
        zstandard.ZstdCompressor(write_content_size=False).compress(plain),
        # Frame header descriptor: single segment, 8 bytes of size.
        b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\1\0\0",
        b"\x28\xb5\x2f\xfd\xe0" + (2**63).to_bytes(8, "little") + b"\1\0\0",
        b"\x50\x2a\x4d\x18" + b"\xff" * 4,  # a frame to be skipped
        b"",
    ]
    for bomb in bombs:
        assert peak_of(head + bomb) < 2**20


def receiver_in_session() -> LinkReceiver:
    receiver = LinkReceiver(own="tokyo", neighbour="paris", sender_user="p")
    receiver.log_opened(LogFacts(RUN, b"log", NameSet().encode), 0.0)
    receiver.connected(0.0)
    receiver.frame("p", encode_ask(NONCE, 1), 0.0, 1)
    return receiver


PATHS = [
    ("lyon", *(f"{n:04}" + "x" * 250 for n in range(256)), "y" * 240, "paris"),
    ("lyon", *(f"{n:x}" for n in range(MAX_PATH_SITES - 2)), "paris"),
]


@pytest.mark.parametrize("path", PATHS, ids=["bytes", "sites"])
def test_a_path_without_room_for_this_site_is_put_aside_and_the_link_goes_on(
    path: tuple[str, ...],
) -> None:
    receiver = receiver_in_session()
    header, data = seal(replace(HEADER, path=path), ENTRIES)
    frame = encode_batch_frame(2, NONCE, RUN, 1, data, header.path, False)
    (aside, *_) = receiver.frame("p", frame, 0.0, 1)
    assert isinstance(aside, Quarantine)
    assert "no room for 'tokyo'" in aside.reason
    header, data = seal(HEADER, ENTRIES)
    frame = encode_batch_frame(2, NONCE, RUN, 2, data, header.path, False)
    (append, *_) = receiver.frame("p", frame, 0.0, 1)
    assert isinstance(append, Append)
    assert read_header(append.data).path == ("lyon", "paris", "tokyo")
