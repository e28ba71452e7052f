"""Decoder of the broker's bytes into events, a whole read at a time. No socket, no clock.

A frame, and the three kinds of frames that a delivery is made of::

    0      1         3           7              7+size
    +------+---------+-----------+--------------+------+
    | type | channel |   size    |   payload    | 0xCE |
    +------+---------+-----------+--------------+------+

    1 METHOD  | 60 | 60 | len, consumer tag | delivery tag, 8 | redelivered, 1 | len, exchange
              | len, routing key |
    2 HEADER  | 60 | 0 | body size, 8 | properties: flags, then those that are present |
    3 BODY    | a piece of the body |                    (none at all if the body is empty)

The path is hot: a delivery must cost about a microsecond. So there is no object per frame; a
delivery whose frames are all in the buffer is read by three ``unpack_from`` and becomes a tuple.
Only deliveries that are cut by the end of a read, or big, or rare go frame by frame.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from pamqp import base as pamqp_base
from pamqp import frame as pamqp_frame

from relay import core
from relay.bulk_amqp.errors import UnexpectedFrame

Delivery: TypeAlias = tuple[int, bool, str, bytes, bytes, bytes]
"""(delivery tag, redelivered, exchange, routing key, properties, body).

``properties`` are the content header's bytes from the property flags on, as received.
"""

CONSUMER_TAG_LENGTH = 6
"""Bytes of every consumer tag that we choose: a fixed length, so that one struct reads them all."""

FRAME_END = 0xCE
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_DELIVER, _RETURN, _ACK, _NACK = 0x003C003C, 0x003C0032, 0x003C0050, 0x003C0078
_NAMES_REMEMBERED = 8192
_CLASS = 0x003C0000

# type+channel | size | method, consumer tag | delivery tag | redelivered
_DELIVER_START = struct.Struct(f">3sI{4 + 1 + CONSUMER_TAG_LENGTH}sQ?")
# end of the frame before, type+channel | size | class, weight | body size
_HEADER_START = struct.Struct(">4sIIQ")
# end of the frame before, type+channel | size
_BODY_START = struct.Struct(">4sI")
# type, channel, size, method | delivery tag | bits | end: the whole of an ack and of a nack
_CONFIRM = struct.Struct(">11sQBB")
_FRAME_START = struct.Struct(">BHI")
_UINT32 = struct.Struct(">I")
_CONFIRM_PAYLOAD = 13
_SMALL = 32768
_BIG = 1024 * 1024
_ADDED = 65536
"""Bytes by which a header frame may be larger than agreed: a queue adds to a message whose
properties fill a frame (x-delivery-count, x-death), and RabbitMQ sends the result in one frame all
the same."""
_DELIVER_TO = _UINT32.pack(_DELIVER) + bytes([CONSUMER_TAG_LENGTH])


@dataclass(slots=True)
class Deliveries:
    """Deliveries to a consumer that a read completed, in order."""

    channel: int
    consumer_tag: str
    messages: Sequence[Delivery]
    """A list, or a `DeliveryBlock` of the native core, which makes a delivery's objects when asked
    for the delivery."""


@dataclass(slots=True)
class Confirms:
    """Acks (or nacks) of publishes, in the order received: (tag, bits); bit 0 is ``multiple``."""

    channel: int
    positive: bool
    tags: list[tuple[int, int]]


@dataclass(slots=True)
class Returned:
    """A mandatory message that no queue took, handed back."""

    channel: int
    code: int
    text: str
    exchange: str
    routing_key: bytes
    properties: bytes
    body: bytes


@dataclass(slots=True)
class Method:
    """Any other method, decoded by pamqp."""

    channel: int
    frame: pamqp_base.Frame


@dataclass(slots=True)
class Broken:
    """The stream of frames cannot be read any further."""

    error: UnexpectedFrame


Event: TypeAlias = Deliveries | Confirms | Returned | Method | Broken


@dataclass(slots=True)
class _Content:
    """A delivery or return with some frames still to come."""

    route: tuple[bytes, bytes] | None  # a delivery's consumer; None for a return
    first: tuple[int, bool] | tuple[int, str]
    exchange: str
    routing_key: bytes
    properties: bytes | None = None
    missing: int = 0
    pieces: list[bytes] = field(default_factory=list)
    big: bytearray | None = None
    """A big body in one growing block, handed over without a copy. Pieces kept apart and joined in
    the end would take their memory twice."""


def last_tag(messages: Sequence[Delivery]) -> int:
    """Delivery tag of the last of these, without an object for a message in a `DeliveryBlock`."""
    return messages[-1][0] if isinstance(messages, list) else messages.last_tag  # type: ignore[attr-defined, no-any-return]


class FrameReader:
    """Decodes reads, cut anywhere, into events. ``frame_max`` is in bytes."""

    def __init__(self, frame_max: int) -> None:
        self.frame_max = frame_max
        self._held: list[bytes] = []  # the start of a frame that is not complete
        self._held_bytes = 0
        self._wanted = 0  # bytes that must be there before looking again makes sense
        self._contents: dict[int, _Content] = {}
        self._names: dict[bytes, tuple[str, bytes]] = {}
        self._exchanges: dict[bytes, str] = {}
        self._open: dict[tuple[bytes, bytes], list[Delivery]] = {}
        self._data = b""
        """Bytes of the present read, from `feed` to its end."""
        self._block = None if core.native is None else core.native.DeliveryBlock
        self._broken = False

    def feed(self, data: bytes) -> list[Event]:
        """Events that ``data`` completes, in order. After a ``Broken`` nothing more is read."""
        if self._broken:
            return []
        if self._held:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes < self._wanted:
                return []
            data = b"".join(self._held)
            self._held.clear()
        events: list[Event] = []
        self._data = data
        try:
            position = self._read(data, events)
        except UnexpectedFrame as error:
            self._broken = True
            events.append(Broken(error))
            return events
        finally:
            self._data = b""
            self._open.clear()  # else the reader would keep the last bodies until the next read
        if position < len(data):
            rest = data[position:] if position else data
            self._held.append(rest)
            self._held_bytes = len(rest)
        return events

    def forget_channel(self, channel: int) -> None:
        """Drop the unfinished content of a closed channel."""
        self._contents.pop(channel, None)

    def _read(self, data: bytes, events: list[Event]) -> int:
        """Read all complete frames; return the position of the first incomplete one."""
        end = len(data)
        position = 0
        while position < end:
            if not self._contents:
                if self._block is None:
                    position = self._read_deliveries(data, position, end, events)
                else:
                    position = self._scan_deliveries(data, position, events)
            if end - position < 7:
                self._wanted = 8
                return position
            kind, channel, size = _FRAME_START.unpack_from(data, position)
            if size > self.frame_max - 8 + (_ADDED if kind == _HEADER else 0):
                raise UnexpectedFrame(
                    501, f"a frame of {size + 8} bytes, where {self.frame_max} were agreed"
                )
            stop = position + 7 + size
            if stop >= end:
                self._wanted = size + 8
                return position
            if data[stop] != FRAME_END:
                raise UnexpectedFrame(501, "a frame does not end where its size says")
            if kind == _METHOD:
                if data[position + 7 : position + 12] == _DELIVER_TO and not self._contents:
                    extent = self._extent_of_small_delivery(data, stop, end)
                    if extent > end:
                        self._wanted = extent - position
                        return position
                elif size == _CONFIRM_PAYLOAD:
                    after = self._read_confirms(data, position, end, channel, events)
                    if after > position:
                        position = after
                        continue
                self._method(data, position + 7, stop, channel, events)
            elif kind == _HEADER:
                self._header(data, position + 7, stop, channel, events)
            elif kind == _BODY:
                self._body(data, position + 7, stop, channel, events)
            elif kind != _HEARTBEAT:
                raise UnexpectedFrame(501, f"an unknown type of frame, {kind}")
            position = stop + 1
        return position

    def _read_deliveries(self, data: bytes, position: int, end: int, events: list[Event]) -> int:
        """Read deliveries that lie in ``data`` whole (the hot loop); stop before anything else."""
        read_method = _DELIVER_START.unpack_from
        read_header = _HEADER_START.unpack_from
        read_body = _BODY_START.unpack_from
        names = self._names
        largest = self.frame_max - 8
        names_at, deliver_class, frame_end = _DELIVER_START.size, _CLASS, FRAME_END
        last_start = last_consumer = b""
        header_start = body_start = b""
        append = None
        try:
            while True:
                start, size, consumer, tag, redelivered = read_method(data, position)
                if consumer != last_consumer or start != last_start:
                    if start[0] != _METHOD or consumer[:5] != _DELIVER_TO:
                        return position
                    append = None
                    last_start, last_consumer = start, consumer
                    header_start = b"\xce\x02" + start[1:]
                    body_start = b"\xce\x03" + start[1:]
                at = position + 7 + size
                name = data[position + names_at : at]
                end_and_start, size, content_class, body_size = read_header(data, at)
                if (
                    end_and_start != header_start
                    or content_class != deliver_class
                    or size > largest
                ):
                    return position
                properties = data[at + 20 : at + 8 + size]
                at += 8 + size
                if body_size:
                    end_and_start, size = read_body(data, at)
                    if end_and_start != body_start or size != body_size or size > largest:
                        return position
                    body = data[at + 8 : at + 8 + size]
                    at += 8 + size
                else:
                    body = b""
                if at >= end or data[at] != frame_end:
                    return position
                known = names.get(name)
                if known is None:
                    known = self._remember(name)
                if append is None:
                    append = self._batch_of(start, consumer, events).append
                append((tag, redelivered, known[0], known[1], properties, body))
                position = at + 1
        except struct.error:  # cut by the end of the buffer
            return position

    def _scan_deliveries(self, data: bytes, position: int, events: list[Event]) -> int:
        """Read deliveries as `_read_deliveries` does, by the native core: as spans of `data`."""
        at, bad_names = core.native.scan_deliveries(
            data,
            position,
            self.frame_max - 8,
            lambda start, consumer: self._batch_of(start, consumer, events),
        )
        if bad_names:
            size = _UINT32.unpack_from(data, at + 3)[0]
            self._remember(data[at + _DELIVER_START.size : at + 7 + size])  # raises, with the words
        return int(at)

    def _extent_of_small_delivery(self, data: bytes, at: int, end: int) -> int:
        """End of the delivery whose method frame ends at ``at``; 0 if the delivery is not small.

        A small delivery cut by a read's end is worth holding back whole: with the next read it goes
        the fast way. A big one is taken frame by frame, so that no byte is copied again and again.
        """
        if data[at + 1 : at + 2] not in (b"", b"\x02"):
            return 0
        if at + 8 > end:
            return at + 8
        size = _UINT32.unpack_from(data, at + 4)[0]
        if size < 14 or size > self.frame_max - 8:
            return 0
        if at + _HEADER_START.size > end:
            return at + _HEADER_START.size
        body_size = _HEADER_START.unpack_from(data, at)[3]
        if size + body_size > _SMALL:
            return 0
        return at + 9 + int(size) + (8 + int(body_size) if body_size else 0)

    def _batch_of(self, start: bytes, consumer: bytes, events: list[Event]) -> list[Delivery]:
        """Sequence of this read's deliveries to a consumer."""
        route = (start, consumer)
        messages = self._open.get(route)
        if messages is None:
            messages = self._open[route] = [] if self._block is None else self._block(self._data)
            tag = consumer[5:].decode("ascii", "replace")
            events.append(Deliveries(int.from_bytes(start[1:], "big"), tag, messages))
        return messages

    def _remember(self, name: bytes) -> tuple[str, bytes]:
        """Decode ``len, exchange, len, routing key``; most messages repeat a pair seen before."""
        length = name[0] if name else 0
        exchange = name[1 : 1 + length]
        if len(name) < length + 2 or name[1 + length] != len(name) - length - 2:
            raise UnexpectedFrame(502, "basic.deliver does not end where its names say")
        text = self._exchanges.get(exchange)
        if text is None:
            text = self._exchanges[exchange] = exchange.decode("utf-8", "surrogateescape")
        if len(self._names) >= _NAMES_REMEMBERED:
            self._names.clear()
        known = self._names[name] = (text, name[length + 2 :])
        return known

    def _read_confirms(
        self, data: bytes, position: int, end: int, channel: int, events: list[Event]
    ) -> int:
        """Read a run of acks, or of nacks; return the position behind, unchanged if there is
        none.
        """
        head = data[position : position + 11]
        method = _UINT32.unpack_from(head, 7)[0]
        if method not in (_ACK, _NACK):
            return position
        self._in_no_content(channel)
        tags: list[tuple[int, int]] = []
        append = tags.append
        run = memoryview(data)[position : end - (end - position) % _CONFIRM.size]
        for start, tag, bits, last in _CONFIRM.iter_unpack(run):
            if start != head:
                break
            if last != FRAME_END:
                raise UnexpectedFrame(501, "a confirm does not end where its size says")
            append((tag, bits))
        self._close_batches(channel)
        events.append(Confirms(channel, method == _ACK, tags))
        return position + _CONFIRM.size * len(tags)

    def _method(
        self, data: bytes, position: int, stop: int, channel: int, events: list[Event]
    ) -> None:
        self._in_no_content(channel)
        if stop - position < 4:
            raise UnexpectedFrame(502, "a method frame without a method")
        method = _UINT32.unpack_from(data, position)[0]
        if method == _DELIVER:
            self._contents[channel] = self._begin_delivery(data, position, stop, channel)
        elif method == _RETURN:
            self._contents[channel] = self._begin_return(data, position + 4, stop)
        else:
            self._close_batches(channel)
            try:
                _, _, decoded = pamqp_frame.unmarshal(data[position - 7 : stop + 1])
            except Exception as error:  # whatever a decoder makes of bytes that are not AMQP
                raise UnexpectedFrame(502, f"a method that cannot be decoded: {error}") from error
            if not isinstance(decoded, pamqp_base.Frame):
                raise UnexpectedFrame(502, "a method frame without a method")
            events.append(Method(channel, decoded))

    def _begin_delivery(self, data: bytes, position: int, stop: int, channel: int) -> _Content:
        consumer = data[position : position + 5 + CONSUMER_TAG_LENGTH]
        if stop - position < 22 or consumer[4] != CONSUMER_TAG_LENGTH:
            raise UnexpectedFrame(503, "a delivery to a consumer that was never asked for")
        at = position + len(consumer)
        tag = int.from_bytes(data[at : at + 8], "big")
        exchange, routing_key = self._remember(data[at + 9 : stop])
        start = b"\x01" + channel.to_bytes(2, "big")
        return _Content((start, consumer), (tag, bool(data[at + 8])), exchange, routing_key)

    def _begin_return(self, data: bytes, position: int, stop: int) -> _Content:
        code = int.from_bytes(data[position : position + 2], "big")
        at = position + 3 + data[position + 2] if stop - position > 2 else stop
        if at >= stop:
            raise UnexpectedFrame(502, "basic.return is cut short")
        text = data[position + 3 : at].decode("utf-8", "replace")
        exchange, routing_key = self._remember(data[at:stop])
        return _Content(None, (code, text), exchange, routing_key)

    def _header(
        self, data: bytes, position: int, stop: int, channel: int, events: list[Event]
    ) -> None:
        content = self._contents.get(channel)
        if content is None or content.properties is not None:
            raise UnexpectedFrame(505, "a content header where none belongs")
        if stop - position < 14:
            raise UnexpectedFrame(502, "a content header that is cut short")
        content.missing = int.from_bytes(data[position + 4 : position + 12], "big")
        content.properties = data[position + 12 : stop]
        if content.missing >= _BIG:
            content.big = bytearray()
        if not content.missing:
            self._complete(channel, content, events)

    def _body(
        self, data: bytes, position: int, stop: int, channel: int, events: list[Event]
    ) -> None:
        content = self._contents.get(channel)
        if content is None or content.properties is None:
            raise UnexpectedFrame(505, "a content body where none belongs")
        if content.big is not None:
            content.big += memoryview(data)[position:stop]
        else:
            content.pieces.append(data[position:stop])
        content.missing -= stop - position
        if content.missing < 0:
            raise UnexpectedFrame(502, "a body is larger than its header says")
        if not content.missing:
            self._complete(channel, content, events)

    def _complete(self, channel: int, content: _Content, events: list[Event]) -> None:
        del self._contents[channel]
        if content.big is not None:
            body = cast(bytes, content.big)
        else:
            body = content.pieces[0] if len(content.pieces) == 1 else b"".join(content.pieces)
        properties = content.properties or b""
        if content.route is None:
            self._close_batches(channel)
            code, text = content.first
            events.append(
                Returned(
                    channel,
                    code,
                    str(text),
                    content.exchange,
                    content.routing_key,
                    properties,
                    body,
                )
            )
            return
        messages = self._batch_of(*content.route, events)
        tag, redelivered = content.first
        messages.append(
            (tag, bool(redelivered), content.exchange, content.routing_key, properties, body)
        )

    def _in_no_content(self, channel: int) -> None:
        if channel in self._contents:
            raise UnexpectedFrame(505, "a method in the middle of a message")

    def _close_batches(self, channel: int) -> None:
        """Close this channel's open batches: later deliveries must not overtake the next event."""
        if self._open:
            start = b"\x01" + channel.to_bytes(2, "big")
            for route in [route for route in self._open if route[0] == start]:
                del self._open[route]
