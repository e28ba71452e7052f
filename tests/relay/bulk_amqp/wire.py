"""What a broker would put on the wire, built by pamqp: another hand than the code under test."""

from __future__ import annotations

import struct

from pamqp import base as pamqp_base
from pamqp import commands
from pamqp import frame as pamqp_frame

from relay.bulk_amqp.frame_reader import (
    Broken,
    Confirms,
    Deliveries,
    Delivery,
    Event,
    FrameReader,
    Method,
    Returned,
)

FRAME_MAX = 4096
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def method(channel: int, frame: pamqp_base.Frame) -> bytes:
    return pamqp_frame.marshal(frame, channel)


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def content(channel: int, properties: bytes, body: bytes, frame_max: int = FRAME_MAX) -> bytes:
    largest = frame_max - 8
    parts = [frame(2, channel, struct.pack(">HHQ", 60, 0, len(body)) + properties)]
    parts += [frame(3, channel, body[at : at + largest]) for at in range(0, len(body), largest)]
    return b"".join(parts)


def delivery(
    channel: int, consumer_tag: str, message: Delivery, frame_max: int = FRAME_MAX
) -> bytes:
    tag, redelivered, exchange, routing_key, properties, body = message
    start = commands.Basic.Deliver(consumer_tag, tag, redelivered, exchange, routing_key.decode())
    return method(channel, start) + content(channel, properties, body, frame_max)


def returned(channel: int, message: tuple[str, bytes, bytes, bytes]) -> bytes:
    exchange, routing_key, properties, body = message
    start = commands.Basic.Return(312, "NO_ROUTE", exchange, routing_key.decode())
    return method(channel, start) + content(channel, properties, body)


def read_all(pieces: list[bytes], frame_max: int = FRAME_MAX) -> list[object]:
    """What a reader makes of the pieces, in a form that does not depend on where they were cut."""
    reader = FrameReader(frame_max)
    told: list[object] = []
    for piece in pieces:
        for event in reader.feed(piece):
            told.extend(_plainly(event))
    return told


def _plainly(event: Event) -> list[object]:
    match event:
        case Deliveries(channel, consumer_tag, messages):
            return [("delivery", channel, consumer_tag, message) for message in messages]
        case Confirms(channel, positive, tags):
            return [("confirm", channel, positive, tag) for tag in tags]
        case Returned():
            return [("returned", event)]
        case Method(channel, decoded):
            return [("method", channel, decoded.name)]
        case Broken(error):
            return [("broken", error.code)]
