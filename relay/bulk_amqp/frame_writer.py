"""Encoder of messages into the bytes to publish them, whole buffers at a time. No socket, no clock.

A message is a method frame, a header frame, and as many body frames as needed (frames are drawn in
frame_reader.py). The method frame depends on exchange and routing key alone, so each pair's frame
is built once; the rest is two packs and a join::

    [ basic.publish frame | 2, channel ][ size, class, weight, body size ][ properties ]
    [ 0xCE, 3, channel, size ][ body ][ 0xCE ]
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from relay.bulk_amqp.errors import MessageUnsendable

Message: TypeAlias = tuple[str, bytes, bytes, bytes]
"""(exchange, routing key, properties, body); ``properties`` from the property flags on."""

_METHODS_REMEMBERED = 8192
_BIG = 1024 * 1024
_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">IIQ")
_BODY = struct.Struct(">4sI")
_ACK = struct.Struct(">BHIIQBB")
_CLASS = 0x003C0000
_END = b"\xce"


class FrameWriter:
    """Builds the frames that a channel sends. ``frame_max`` is in bytes, as negotiated."""

    def __init__(self, channel: int, frame_max: int) -> None:
        self.channel = channel
        self.largest = frame_max - 8
        """Largest payload of a frame in bytes."""
        self._methods: tuple[dict[tuple[str, bytes], bytes], dict[tuple[str, bytes], bytes]]
        self._methods = ({}, {})
        self._body_start = _END + b"\x03" + channel.to_bytes(2, "big")

    def publish(self, messages: Sequence[Message], *, mandatory: bool) -> bytes:
        """All frames of ``messages``, in order, as one block. Raises as ``frames`` does."""
        return b"".join(self.frames(messages, mandatory=mandatory)[0])

    def frames(
        self, messages: Sequence[Message], *, mandatory: bool
    ) -> tuple[list[bytes | memoryview], bool]:
        """All frames of ``messages``, in order and in pieces; and True if a body is so big that the
        pieces had better not be joined.

        Raises MessageUnsendable, naming the first message that AMQP cannot carry.
        """
        big = False
        parts: list[bytes | memoryview] = []
        append = parts.append
        pack_header = _HEADER.pack
        pack_body = _BODY.pack
        methods = self._methods[mandatory]
        body_start = self._body_start
        largest = self.largest
        for exchange, routing_key, properties, body in messages:
            method = methods.get((exchange, routing_key))
            size = len(body)
            header_size = len(properties) + 12
            if method is None or header_size > largest:
                reason = self._refusal(exchange, routing_key, properties)
                if reason:
                    index = next(i for i, m in enumerate(messages) if self._refusal(*m[:3]))
                    raise MessageUnsendable(index, reason)
                method = self._method(exchange, routing_key, mandatory)
            append(method)
            append(pack_header(header_size, _CLASS, size))
            append(properties)
            if not size:
                append(_END)
            elif size <= largest:
                append(pack_body(body_start, size))
                append(body)
                append(_END)
            else:
                whole = memoryview(body)
                for at in range(0, size, largest):
                    piece = whole[at : at + largest]
                    append(pack_body(body_start, len(piece)))
                    append(piece)
                append(_END)
                big = big or size >= _BIG
        return parts, big

    def settle(self, method: int, tag: int, bits: int) -> bytes:
        """Frame of basic.ack or basic.nack."""
        return _ACK.pack(1, self.channel, 13, method, tag, bits, 0xCE)

    def _refusal(self, exchange: str, routing_key: bytes, properties: bytes) -> str:
        """Reason why AMQP cannot carry such a message, or empty."""
        for what, size, most in (
            ("the exchange's name", len(exchange.encode("utf-8", "surrogateescape")), 255),
            ("the routing key", len(routing_key), 255),
            ("the block of properties", len(properties), self.largest - 12),
        ):
            if size > most:
                return f"{what} takes {size} bytes, AMQP allows {most} here"
        return ""

    def _method(self, exchange: str, routing_key: bytes, mandatory: bool) -> bytes:
        """The basic.publish frame, and the start of the header frame that follows."""
        name = exchange.encode("utf-8", "surrogateescape")
        payload = b"".join(
            (
                b"\x00\x3c\x00\x28\x00\x00",
                bytes([len(name)]),
                name,
                bytes([len(routing_key)]),
                routing_key,
                bytes([mandatory]),
            )
        )
        start = b"\x02" + self.channel.to_bytes(2, "big")
        frame = _FRAME.pack(1, self.channel, len(payload)) + payload + _END + start
        methods = self._methods[mandatory]
        if len(methods) >= _METHODS_REMEMBERED:
            methods.clear()
        methods[(exchange, routing_key)] = frame
        return frame


BASIC_ACK = 0x003C0050
BASIC_NACK = 0x003C0078
