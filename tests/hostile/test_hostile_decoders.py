"""Every decoder of bytes from outside: what it declares, or a value, and memory in proportion."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.mesh import IdentityKind, IdentityRule
from relay.batches import varint
from relay.batches.batch import BatchName, Series
from relay.batches.name_set import BadNameSet, NameSet, get_series, put_series
from relay.bulk_amqp import content_header, field_table
from relay.bulk_amqp.frame_reader import FrameReader
from relay.ledger.members import BadMembers, decode_members, encode_members
from relay.links.sender.machine import MAX_WELCOME_BYTES
from relay.links.wire import (
    MAX_TEXT_BYTES,
    BadFrame,
    Cause,
    Measured,
    Over,
    Welcome,
    decode_frame,
    encode_ask,
    encode_members_frame,
    encode_over,
    encode_pulse,
    encode_welcome,
)
from relay.log.recent_names import RecentNames
from relay.packing.intake import Intake
from tests.hostile.decoders import asking_sender, every_look
from tests.hostile.mutations import mutated
from tests.relay.bulk_amqp import wire

SERIES = [Series(f"site-{n}", bytes(8), "orders", n, ("a", "b")) for n in range(3)]
NONCE, RUN = b"n" * 8, b"r" * 8


def some_names() -> NameSet:
    names = NameSet()
    for series in SERIES:
        for start in (0, 300, 70_000):
            names.add_range(series, start, start + 200)
    return names


def some_table() -> bytes:
    out = bytearray()
    put_series(out, SERIES)
    return bytes(out)


def some_recent() -> bytes:
    recent = RecentNames()
    for number, series in enumerate(SERIES):
        recent.read_back(BatchName(series, number), number, 2, 300, known=False)
    return recent.encoded_blocks()[0]


def some_properties() -> bytes:
    table = field_table.entry(b"x-mesh-path", field_table.long_string(b"a,b"))
    table += field_table.entry(b"x-death", b"A\0\0\0\7F\0\0\0\2\1aV")
    changes: dict[int, bytes | int | None] = {
        content_header.CONTENT_TYPE: b"text",
        content_header.EXPIRATION: b"5000",
        content_header.MESSAGE_ID: b"m-1",
        content_header.USER_ID: b"relay",
        content_header.CLUSTER_ID: b"c",
    }
    return content_header.rewrite(content_header.NONE_PRESENT, changes, table)


PROPERTIES = some_properties()


def intake(kind: IdentityKind) -> Intake:
    rule = IdentityRule(kind, "x-mesh-path") if kind is IdentityKind.HEADER else IdentityRule(kind)
    return Intake("orders", rule, ("relay",), random.Random(1).randbytes)


def pack(properties: bytes) -> None:
    """What a packer makes of it, up to bytes that a batch's columns take."""
    for kind in IdentityKind:
        one = intake(kind)
        cleaned = one.clean(properties)
        if cleaned is not None:
            made, _ = one.entry(b"key", cleaned, b"body", 1_700_000_000_000)
            struct.pack(">Q", made.deadline_ms)
            assert len(made.identity) == 16


def read_frames(data: bytes) -> None:
    reader = FrameReader(131_072)
    for at in range(0, len(data), 50):
        reader.feed(data[at : at + 50])


def frame(data: bytes) -> None:
    """As it is, and with the check that belongs to it: whoever lies can count."""
    checked = data[:2] + crc32(data[6:], crc32(data[:2])).to_bytes(4, "big") + data[6:]
    for sent in (data, checked):
        with contextlib.suppress(BadFrame):
            decode_frame(sent)


class Decoder(NamedTuple):
    decode: Callable[[bytes], Any]
    valid: bytes
    declared: tuple[type[Exception], ...]


DECODERS = {
    "varint": Decoder(lambda data: varint.get(data, 0), b"\xff" * 9 + b"\1", (varint.BadVarint,)),
    "series": Decoder(lambda data: get_series(data, 0), some_table(), (varint.BadVarint,)),
    "names": Decoder(NameSet.decode, some_names().encode(), (BadNameSet,)),
    "recent": Decoder(
        lambda data: RecentNames().load([data], []), some_recent(), (varint.BadVarint,)
    ),
    "members": Decoder(decode_members, encode_members(["paris", "lyon"]), (BadMembers,)),
    "ask": Decoder(frame, encode_ask(NONCE, 5), ()),
    "told": Decoder(frame, encode_members_frame(2, NONCE, RUN, "r", b"s"), ()),
    "over": Decoder(frame, encode_over(1, NONCE, RUN, Cause.GAP, 1, "why"), ()),
    "pulse": Decoder(decode_frame, encode_pulse(1, NONCE, RUN, 1, 2, Measured(-3, 4)), (BadFrame,)),
    "welcome": Decoder(
        frame,
        encode_welcome(Welcome(NONCE, RUN, 1, 2, b"log", some_names().encode(), version=2)),
        (),
    ),
    "properties": Decoder(every_look, PROPERTIES, ()),
    "packing": Decoder(pack, PROPERTIES, ()),
    "amqp": Decoder(
        read_frames,
        wire.delivery(1, "ctag.1", (7, False, "orders", b"key", PROPERTIES, b"body")),
        (),
    ),
}


@pytest.mark.parametrize("which", DECODERS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_nothing_is_raised_but_what_is_declared(which: str, data: st.DataObject) -> None:
    decoder = DECODERS[which]
    try:
        decoder.decode(data.draw(mutated(decoder.valid)))
    except decoder.declared:
        return


HUGE = b"\xff" * 9 + b"\1"
"""2^64-1, as a varint."""
LIES = {
    "texts": ("series", HUGE),
    "series": ("series", b"\1\1a" + HUGE),
    "a text": ("series", b"\1" + HUGE + b"a"),
    "destinations": ("series", b"\1\1a\1\0" + bytes(8) + b"\0\0" + HUGE + b"\0"),
    "intervals": ("names", b"\1\1\1a\1\0" + bytes(8) + b"\0\0\0" + HUGE + b"\0\1\1\1"),
    "names": ("recent", b"\1\1a\1\0" + bytes(8) + b"\0\0\0\0\0\0" + HUGE),
    "sites": ("members", encode_members(["x" * 50_000_000])),
    "a table": ("properties", b"\x20\x00\xff\xff\xff\xff"),
    "a body": ("amqp", wire.frame(2, 1, b"\0\x3c\0\0" + b"\xff" * 8 + b"\0\0")),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_count_or_a_length_that_lies_costs_no_memory(lie: str) -> None:
    which, data = LIES[lie]
    decoder = DECODERS[which]
    tracemalloc.start()
    try:
        try:
            decoder.decode(data)
        except decoder.declared:
            pass
        else:
            assert not decoder.declared, "it was believed"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_names_take_at_most_fifty_times_their_bytes() -> None:
    worst = bytearray(b"\1\1\1a\1\0" + bytes(8) + b"\0\0\0")
    varint.put(worst, 20_000)
    worst += b"\1\1" * 20_000
    tracemalloc.start()
    try:
        NameSet.decode(bytes(worst))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50 * len(worst)


def test_an_expiration_of_all_digits_there_is_room_for_is_packed_as_the_longest() -> None:
    expiration = {content_header.EXPIRATION: b"9" * 255}
    pack(content_header.rewrite(content_header.NONE_PRESENT, expiration))


def test_a_reason_of_a_neighbour_is_cut_to_what_fits_into_a_log() -> None:
    said = decode_frame(encode_over(1, NONCE, RUN, Cause.CLOSING, 0, "x" * 1_000_000))
    assert isinstance(said, Over)
    assert said.reason == "x" * MAX_TEXT_BYTES


def test_a_reason_of_a_neighbour_has_nothing_that_a_terminal_obeys() -> None:
    said = decode_frame(encode_over(1, NONCE, RUN, Cause.CLOSING, 0, "\x1b]0;mine\x07\na\u202eb é"))
    assert isinstance(said, Over)
    assert said.reason == "?]0;mine??a?b é"


def test_a_welcome_of_too_many_names_is_dropped_unread() -> None:
    sender = asking_sender()
    for size, state in ((MAX_WELCOME_BYTES + 1, "too many names"), (5, "bad set of names")):
        welcome = encode_welcome(Welcome(NONCE, RUN, 1, 2, b"log", bytes(size)))
        assert sender.frame("tokyo", welcome, 100.0) == []
        assert sender.counters.dropped[state] == 1
    assert sender.reason == f"the receiver's names take {MAX_WELCOME_BYTES + 1} bytes"
    welcome = encode_welcome(Welcome(NONCE, RUN, 1, 2, b"log", NameSet().encode()))
    assert sender.frame("tokyo", welcome, 100.0) != []
    assert sender.reason == ""
