"""The batch format: what is written is read back, and nothing else is believed."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

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
    BadBatch,
    UnknownFormat,
    append_to_path,
    decode_entries,
    read_header,
    seal,
    verify_digest,
)

SERIES = Series("paris", b"incarnat", "orders", 0, ("sydney", "tokyo"))
HEADER = BatchHeader(
    kind=BatchKind.MESSAGES,
    name=BatchName(SERIES, 7),
    incarnation_sequence=12,
    predecessors=(Predecessor(b"01234567", 41), Predecessor(b"abcdefgh", -1)),
    revision="5f1c0aa1b2c3",
    entry_count=0,
    byte_count=0,
    total_messages=100,
    total_bytes=1000,
    first_published_ms=1_700_000_000_000,
    last_published_ms=1_700_000_000_500,
    path=("paris",),
)

entries = st.lists(
    st.builds(
        Entry,
        identity=st.binary(min_size=16, max_size=16),
        routing_key=st.binary(max_size=255),
        properties=st.binary(max_size=60),
        body=st.binary(max_size=300),
        published_ms=st.integers(1_700_000_000_000, 1_700_000_009_999),
        deadline_ms=st.integers(0, 2**63),
        doubtful=st.booleans(),
    ),
    max_size=256,
)


def sealed(given_entries: list[Entry]) -> tuple[BatchHeader, bytes]:
    first = min((e.published_ms for e in given_entries), default=HEADER.first_published_ms)
    return seal(replace(HEADER, first_published_ms=first), given_entries)


@given(entries)
@settings(max_examples=60, deadline=None)
def test_entries_come_back_as_they_were_packed(given_entries: list[Entry]) -> None:
    header, data = sealed(given_entries)
    assert decode_entries(data) == given_entries
    assert read_header(data) == header
    assert header.total_messages == 100 + len(given_entries)
    verify_digest(data)


def test_a_fragment_says_which_piece_it_is() -> None:
    header, data = seal(replace(HEADER, kind=BatchKind.FRAGMENT, fragment=Fragment(3, 20)), [])
    assert read_header(data) == header
    assert read_header(data).fragment == Fragment(3, 20)


def test_a_path_grows_without_opening_the_batch_or_breaking_its_digest() -> None:
    _, data = sealed([Entry(b"i" * 16, b"k", b"\0\0", b"body", 1_700_000_000_000)])
    longer = append_to_path(append_to_path(data, "tokyo"), "sydney")
    assert read_header(longer).path == ("paris", "tokyo", "sydney")
    verify_digest(longer)
    assert decode_entries(longer) == decode_entries(data)


@given(st.integers(0, 10_000), st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_any_flipped_bit_is_caught_before_the_batch_takes_a_name(where: int, bit: int) -> None:
    _, data = sealed([Entry(b"i" * 16, b"key", b"\0\0", b"body" * 9, 1_700_000_000_000)])
    where %= len(data)
    damaged = bytearray(data)
    damaged[where] ^= 1 << bit
    try:
        header = read_header(bytes(damaged))
        verify_digest(bytes(damaged))
    except (BadBatch, UnknownFormat):
        return
    # Only the path is outside the digest.
    assert header.path != ("paris",)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_garbage_raises_nothing_but_bad_batch(garbage: bytes) -> None:
    for data in (garbage, b"ISB\1" + garbage):
        with pytest.raises(BadBatch):
            decode_entries(data)


def test_every_cut_is_a_bad_batch() -> None:
    _, data = sealed([Entry(b"i" * 16, b"key", b"\0\0", b"body" * 9, 1_700_000_000_000)])
    for length in range(len(data)):
        with pytest.raises(BadBatch):
            decode_entries(data[:length])


def test_a_newer_format_is_told_from_damage() -> None:
    _, data = sealed([])
    for read in (read_header, verify_digest, decode_entries):
        with pytest.raises(UnknownFormat, match=r"batch format 3, and this .* reads 1 to 2"):
            read(b"ISB\3" + data[4:])
    with pytest.raises(BadBatch, match="format 0"):
        read_header(b"ISB\0" + data[4:])


def test_a_node_that_is_one_version_older_does_not_read_what_is_newer() -> None:
    _, data = seal(replace(HEADER, format=2), [])
    assert read_header(data).format == 2
    with pytest.raises(UnknownFormat, match=r"batch format 2, and this .* reads only 1"):
        read_header(data, newest=1)


@pytest.mark.parametrize("format_", [1, 2])
def test_each_format_is_written_and_read(format_: int) -> None:
    entry = Entry(b"i" * 16, b"k", b"\0\0", b"body", 1_700_000_000_000)
    header, data = seal(replace(HEADER, format=format_), [entry])
    assert data.startswith(b"ISB" + bytes([format_]))
    assert read_header(data) == header
    verify_digest(data)
    longer = append_to_path(data, "tokyo")
    assert longer.startswith(b"ISB" + bytes([format_]))
    verify_digest(longer)
    assert decode_entries(longer) == [entry]


def test_fields_that_nobody_here_knows_are_passed_over_and_go_on_with_the_batch() -> None:
    said = (HeaderField(7, b"of a later version"), HeaderField(127, b""))
    entry = Entry(b"i" * 16, b"k", b"\0\0", b"body", 1_700_000_000_000)
    header, data = seal(replace(HEADER, format=2, fields=said), [entry])
    longer = append_to_path(data, "tokyo")
    assert read_header(longer) == replace(header, path=("paris", "tokyo"))
    verify_digest(longer)
    assert decode_entries(longer) == [entry]


def test_a_field_that_has_to_be_understood_and_is_not_stops_whoever_reads_the_batch() -> None:
    _, data = seal(replace(HEADER, format=2, fields=(HeaderField(128, b"x"),)), [])
    with pytest.raises(UnknownFormat, match="with field 128"):
        read_header(data)


def test_the_first_format_has_no_room_for_fields() -> None:
    with pytest.raises(ValueError, match="format 1 cannot"):
        seal(replace(HEADER, fields=(HeaderField(7, b""),)), [])
    with pytest.raises(ValueError, match="format 3 cannot"):
        seal(replace(HEADER, format=3), [])


def test_every_cut_of_a_field_is_a_bad_batch() -> None:
    _, data = seal(replace(HEADER, format=2, fields=(HeaderField(7, b"value"),)), [])
    path_bytes, header_bytes = struct.unpack_from(">HI", data, 4)
    for less in range(1, 3 + len(b"value")):
        prefix = data[:4] + struct.pack(">HI", path_bytes, header_bytes - less)
        with pytest.raises(BadBatch):
            read_header(prefix + data[10:])


def test_a_block_that_would_swell_beyond_the_limit_is_refused_unopened() -> None:
    header, data = sealed([])
    bomb = zstandard.ZstdCompressor().compress(bytes(MAX_BLOCK_BYTES + 1))
    path_bytes, header_bytes = struct.unpack_from(">HI", data, 4)
    with pytest.raises(BadBatch, match="block of"):
        decode_entries(data[: 10 + path_bytes + header_bytes] + bomb)
    assert header.entry_count == 0
