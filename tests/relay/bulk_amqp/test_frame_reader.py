from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands

from relay.bulk_amqp.frame_reader import Deliveries, Delivery, Event, FrameReader, Returned
from tests.relay.bulk_amqp import wire

PLAIN = b"\x10\x00\x02"  # delivery mode 2


def message(tag: int, body: bytes, exchange: str = "orders", key: bytes = b"a.b") -> Delivery:
    return (tag, tag % 2 == 0, exchange, key, PLAIN, body)


CONVERSATION: list[tuple[object, bytes]] = [
    (("delivery", 1, "c00001", message(1, b"one")), b""),
    (("delivery", 1, "c00001", message(2, b"")), b""),
    (("delivery", 1, "c00001", message(3, b"x" * 9000)), b""),
    (("method", 1, "Basic.Cancel"), wire.method(1, commands.Basic.Cancel("c00001", True))),
    (("delivery", 1, "c00001", message(4, b"four", "", b"")), b""),
    (("confirm", 2, True, (1, 0)), wire.method(2, commands.Basic.Ack(1, False))),
    (("confirm", 2, True, (5, 1)), wire.method(2, commands.Basic.Ack(5, True))),
    (("confirm", 2, False, (6, 0)), wire.method(2, commands.Basic.Nack(6, False, False))),
    (
        ("returned", Returned(2, 312, "NO_ROUTE", "orders", b"k", PLAIN, b"back")),
        wire.returned(2, ("orders", b"k", PLAIN, b"back")),
    ),
    (("confirm", 2, True, (7, 0)), wire.method(2, commands.Basic.Ack(7, False))),
]


def conversation() -> tuple[list[object], bytes]:
    told, stream = [], wire.HEARTBEAT
    for item, data in CONVERSATION:
        told.append(item)
        stream += data or wire.delivery(*item[1:])  # type: ignore[index]
    return told, stream + wire.HEARTBEAT


def test_a_stream_cut_in_two_at_any_byte_says_the_same() -> None:
    told, stream = conversation()
    for cut in range(len(stream) + 1):
        assert wire.read_all([stream[:cut], stream[cut:]]) == told, cut


def test_a_stream_that_comes_byte_by_byte_says_the_same() -> None:
    told, stream = conversation()
    assert wire.read_all([stream[at : at + 1] for at in range(len(stream))]) == told


@given(st.lists(st.integers(0, 12_000), max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_stream_cut_anywhere_says_the_same(cuts: list[int]) -> None:
    told, stream = conversation()
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert wire.read_all(pieces) == told


def deliveries(events: list[Event]) -> list[tuple[int, str, list[Delivery]]]:
    assert all(isinstance(event, Deliveries) for event in events)
    return [
        (event.channel, event.consumer_tag, list(event.messages))
        for event in events
        if isinstance(event, Deliveries)
    ]


def test_consumers_of_two_channels_each_keep_their_order() -> None:
    first = [message(tag, b"1" * tag) for tag in range(1, 40)]
    second = [message(tag, b"2" * tag) for tag in range(1, 40)]
    stream = b"".join(
        wire.delivery(1, "c00001", a) + wire.delivery(2, "c00002", b)
        for a, b in zip(first, second, strict=True)
    )
    events = FrameReader(wire.FRAME_MAX).feed(stream)
    assert deliveries(events) == [(1, "c00001", first), (2, "c00002", second)]


def test_frames_of_two_channels_may_lie_between_each_other() -> None:
    big, small = message(1, b"b" * 9000), message(1, b"s")
    frames = wire.delivery(1, "c00001", big)
    method_and_header = len(frames) - 9000 - 3 * 8
    stream = frames[:method_and_header] + wire.delivery(2, "c00002", small)
    stream += frames[method_and_header:]
    assert wire.read_all([stream]) == [
        ("delivery", 2, "c00002", small),
        ("delivery", 1, "c00001", big),
    ]


def test_a_body_of_16_mib_arrives_whole_from_small_reads() -> None:
    big = message(1, bytes(range(256)) * 65536)
    stream = wire.delivery(1, "c00001", big, frame_max=131072)
    pieces = [stream[at : at + 4000] for at in range(0, len(stream), 4000)]
    assert wire.read_all(pieces, 131072) == [("delivery", 1, "c00001", big)]


def test_the_reader_keeps_no_body_that_was_handed_over() -> None:
    reader = FrameReader(131072)
    stream = wire.delivery(1, "c00001", message(1, b"x" * 2**21), frame_max=131072)
    (event,) = reader.feed(stream)
    assert isinstance(event, Deliveries)
    body = event.messages[0][5]
    del event
    assert sys.getrefcount(body) == 2


def test_a_header_frame_may_be_larger_than_agreed_by_what_a_queue_adds() -> None:
    full = b"\x20\x00" + (wire.FRAME_MAX + 500).to_bytes(4, "big") + bytes(wire.FRAME_MAX + 500)
    sent = (1, False, "e", b"k", full, b"body")
    stream = wire.delivery(1, "c00001", sent)
    for cut in (1, 30, 5000, len(stream) - 3):
        pieces = [stream[:cut], stream[cut:]]
        assert wire.read_all(pieces) == [("delivery", 1, "c00001", sent)], cut


def test_names_that_are_no_text_come_through_as_they_are() -> None:
    stream = wire.delivery(1, "c00001", (1, False, "E", b"K", PLAIN, b""))
    stream = stream.replace(b"\x01E", b"\x01\xff").replace(b"\x01K", b"\x01\xfe")
    ((_, _, _, got),) = wire.read_all([stream])  # type: ignore[misc]
    assert got[2].encode("utf-8", "surrogateescape") == b"\xff"  # type: ignore[has-type]
    assert got[3] == b"\xfe"  # type: ignore[has-type]


def test_many_routing_keys_are_each_read_right() -> None:
    sent = [message(n, b"", key=f"key.{n}".encode()) for n in range(1, 20_000)]
    stream = b"".join(wire.delivery(1, "c00001", one) for one in sent)
    assert deliveries(FrameReader(wire.FRAME_MAX).feed(stream)) == [(1, "c00001", sent)]


DELIVER = wire.method(1, commands.Basic.Deliver("c00001", 1, False, "e", "k"))


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (b"AMQP\x00\x00\x09\x01", 501),
        (b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x3cX", 501),
        (wire.frame(1, 1, b"\x00" * wire.FRAME_MAX), 501),
        (wire.frame(5, 1, b"what?"), 501),
        (wire.frame(1, 1, b"\x00"), 502),
        (wire.frame(1, 1, b"\x00\x63\x00\x01"), 502),
        (wire.frame(2, 1, b"\x00" * 14), 505),
        (wire.frame(3, 1, b"body"), 505),
        (DELIVER + DELIVER, 505),
        (DELIVER + wire.frame(3, 1, b"body"), 505),
        (DELIVER + wire.frame(2, 1, b"\x00\x3c\x00\x00"), 502),
        (DELIVER + wire.content(1, PLAIN, b"four")[:-12] + wire.frame(3, 1, b"fives"), 502),
        (wire.method(1, commands.Basic.Deliver("other", 1, False, "e", "k")), 503),
        (wire.delivery(1, "c00001", message(1, b"x")).replace(b"\x06orders", b"\x07orders"), 502),
        (wire.method(1, commands.Basic.Ack(1))[:-1] + b"X", 501),
    ],
)
def test_what_amqp_forbids_is_named_and_ends_the_reading(stream: bytes, code: int) -> None:
    reader = FrameReader(wire.FRAME_MAX)
    for piece in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        assert wire.read_all(piece) == [("broken", code)]
    reader.feed(stream)
    assert reader.feed(wire.method(1, commands.Basic.Ack(1))) == []


def test_what_came_before_the_break_is_still_told() -> None:
    stream = wire.delivery(1, "c00001", message(1, b"x")) + wire.frame(7, 1, b"")
    assert wire.read_all([stream]) == [
        ("delivery", 1, "c00001", message(1, b"x")),
        ("broken", 501),
    ]


@given(st.integers(0, 9_500), st.integers(0, 255), st.integers(1, 9_500))
@settings(max_examples=300, deadline=None)
def test_no_damage_raises_anything(place: int, value: int, cut: int) -> None:
    _, stream = conversation()
    damaged = bytearray(stream)
    damaged[place % len(damaged)] = value
    wire.read_all([bytes(damaged[:cut]), bytes(damaged[cut:])])


@given(st.binary(max_size=200))
def test_no_bytes_at_all_raise_anything(data: bytes) -> None:
    wire.read_all([data])
    wire.read_all([DELIVER, data])
