from __future__ import annotations

import pytest
from pamqp import body as pamqp_body
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp import header as pamqp_header

from relay.bulk_amqp.errors import MessageUnsendable
from relay.bulk_amqp.frame_writer import BASIC_ACK, BASIC_NACK, FrameWriter, Message

PLAIN = b"\x10\x00\x02"


def decoded(data: bytes) -> list[object]:
    frames: list[object] = []
    while data:
        size, channel, frame = pamqp_frame.unmarshal(data)
        assert channel == 7
        frames.append(frame)
        data = data[size:]
    return frames


def test_what_is_written_is_what_another_library_reads() -> None:
    messages: list[Message] = [
        ("orders", b"a.b", PLAIN, b"hello"),
        ("", b"queue", b"\x00\x00", b""),
        ("orders", b"a.b", PLAIN, b"again"),
    ]
    frames = decoded(FrameWriter(7, 4096).publish(messages, mandatory=True))
    starts = [frame for frame in frames if isinstance(frame, commands.Basic.Publish)]
    headers = [frame for frame in frames if isinstance(frame, pamqp_header.ContentHeader)]
    bodies = [frame.value for frame in frames if isinstance(frame, pamqp_body.ContentBody)]
    assert [(s.exchange, s.routing_key, s.mandatory) for s in starts] == [
        ("orders", "a.b", True),
        ("", "queue", True),
        ("orders", "a.b", True),
    ]
    assert [h.body_size for h in headers] == [5, 0, 5]
    assert [h.properties.delivery_mode for h in headers] == [2, None, 2]
    assert bodies == [b"hello", b"again"]


@pytest.mark.parametrize("size", [4087, 4088, 4089, 8176, 8177, 20_000])
def test_a_body_is_cut_into_frames_that_fit(size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    frames = decoded(FrameWriter(7, 4096).publish([("e", b"k", PLAIN, body)], mandatory=False))
    pieces = [frame.value for frame in frames if isinstance(frame, pamqp_body.ContentBody)]
    assert b"".join(pieces) == body
    assert [len(piece) for piece in pieces[:-1]] == [4088] * (len(pieces) - 1)
    assert not frames[0].mandatory  # type: ignore[attr-defined]


def test_settling_is_what_another_library_reads() -> None:
    writer = FrameWriter(7, 4096)
    ack, nack = decoded(writer.settle(BASIC_ACK, 9, 1) + writer.settle(BASIC_NACK, 10, 2))
    assert isinstance(ack, commands.Basic.Ack)
    assert isinstance(nack, commands.Basic.Nack)
    assert (ack.delivery_tag, ack.multiple) == (9, True)
    assert (nack.delivery_tag, nack.multiple, nack.requeue) == (10, False, True)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (("é" * 128, b"k", PLAIN, b""), "exchange's name takes 256 bytes"),
        (("e", b"k" * 256, PLAIN, b""), "routing key takes 256 bytes"),
        (("e", b"k", b"\x00" * 4077, b""), "properties takes 4077 bytes, AMQP allows 4076"),
    ],
)
def test_what_amqp_cannot_carry_is_refused_by_its_place(bad: Message, what: str) -> None:
    good: Message = ("e", b"k", PLAIN, b"")
    with pytest.raises(MessageUnsendable, match=what) as refused:
        FrameWriter(7, 4096).publish([good, good, bad, good, bad], mandatory=False)
    assert refused.value.index == 2


def test_properties_that_just_fill_a_frame_are_sent() -> None:
    data = FrameWriter(7, 4096).publish([("e", b"k", b"\x00" * 4076, b"")], mandatory=False)
    assert data.endswith(b"\xce")


def test_more_routing_keys_than_are_remembered_are_each_written_right() -> None:
    messages: list[Message] = [("e", b"k%d" % n, PLAIN, b"") for n in range(20_000)]
    frames = decoded(FrameWriter(7, 4096).publish(messages, mandatory=False))
    keys = [f.routing_key for f in frames if isinstance(f, commands.Basic.Publish)]
    assert keys == [f"k{n}" for n in range(20_000)]
