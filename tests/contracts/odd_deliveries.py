"""Random deliveries and entries for the native core and its twins: common, odd and damaged."""

from __future__ import annotations

import random
import struct
import uuid

from relay.batches.batch import Entry
from relay.batches.fragments import FRAGMENT_ABOVE

FRAME_MAX = 131_072
START_MS = 1_700_000_000_000
NOTHING, LONE_COUNT = b"", b"\x10x-delivery-countl\0\0\0\0\0\0\0\x02"
OURS = b"\x0fx-mesh-exchangeS\0\0\0\x06orders"
HEADERS = 0x2000
_ORDER = [1 << bit for bit in range(15, 1, -1)]
_COMMON_FLAGS = [0x1080, 0x1080, 0x3080, 0x9080, 0xB080, 0x2000, 0x0000, 0x1180, 0x3010, 0x1014]


class OddDeliveries:
    """Maker of deliveries from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def happens(self, share: float) -> bool:
        return self.chance.random() < share

    def _table(self) -> bytes:
        if self.happens(0.4):
            return self.chance.choice([NOTHING, LONE_COUNT, OURS])
        names = [
            b"a",
            b"x-mesh-path",
            b"x-mesh-exchange",
            b"x-delivery-count",
            b"x-acquired-count",
            b"x-death",
            b"order",
        ]
        values = [b"t\x01", b"l" + bytes(8), b"S\0\0\0\x03abc", b"x\0\0\0\0", b"V", b"F\0\0\0\0"]
        made = b""
        for _ in range(self.chance.randrange(4)):
            name = self.chance.choice(names)
            made += _short(name) + self.chance.choice(values)
        return made

    def properties(self) -> bytes:
        """Bytes of a content header from its flags on, a tenth of them damaged."""
        chance = self.chance
        if self.happens(0.03):
            return chance.randbytes(chance.randrange(12))
        flags = chance.choice([*_COMMON_FLAGS, chance.randrange(1 << 16)])
        made = struct.pack(">H", flags)
        for which in _ORDER:
            if flags & which:
                made += self._property(which)
        if self.happens(0.04):
            made = made[: chance.randrange(len(made) + 1)]
        if self.happens(0.03):
            made += chance.randbytes(chance.randrange(1, 4))
        return self.damaged(made, 1) if made and self.happens(0.04) else made

    def _property(self, which: int) -> bytes:
        chance = self.chance
        if which == HEADERS:
            table = self._table()
            return struct.pack(">I", len(table)) + table
        if which in (0x1000, 0x0800):
            return bytes([chance.randrange(10)])
        if which == 0x0040:
            return chance.randbytes(8)
        if which == 0x0080:
            text = str(uuid.UUID(bytes=chance.randbytes(16))).encode()
            urn = b"urn:uuid:" + text
            odd = [b"", b"id-7", b"-" * 36, b"0" * 36, self.damaged(urn, 1), urn[:-1], urn + b"0"]
            return _short(chance.choice([text, text.upper(), urn, urn.upper(), chance.choice(odd)]))
        if which == 0x0100:
            return _short(chance.choice([b"100", b"0", b"", b"1x", b"9" * 30]))
        if which == 0x0010:
            return _short(chance.choice([b"relay", b"ann"]))
        return _short(chance.randbytes(chance.choice([0, 3, 12, 255])))

    def damaged(self, data: bytes, times: int) -> bytes:
        """Copy of the bytes with so many of them changed."""
        changed = bytearray(data)
        for _ in range(times):
            changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
        return bytes(changed)

    def body(self) -> bytes:
        chance = self.chance
        share = chance.random()
        if share < 0.1:
            return b""
        if share < 0.93:
            return chance.randbytes(chance.randrange(1, 2_000))
        if share < 0.99:
            return chance.randbytes(chance.randrange(1, 150_000))
        return chance.randbytes(FRAGMENT_ABOVE)

    def delivery(self, tag: int, channel: int = 1, consumer: bytes = b"c00001") -> bytes:
        """Frames of one random delivery."""
        chance = self.chance
        key = chance.choice([b"order.new", b"", b"k" * chance.randrange(256)])
        exchange = chance.choice([b"orders", b"", "übung".encode(), b"\xff\xfe"])
        exchange = chance.choice([b"orders", b"", "übung".encode(), b"\xff\xfe"])
        redelivered = self.happens(0.05)
        body, properties = self.body(), self.properties()
        return delivery(
            tag,
            properties,
            body,
            key=key,
            exchange=exchange,
            redelivered=redelivered,
            channel=channel,
            consumer=consumer,
        )

    def stream(self, count: int) -> bytes:
        """Frames as a broker sends them, deliveries most of all."""
        chance = self.chance
        made = b""
        for tag in range(1, count + 1):
            share = chance.random()
            channel = chance.choice([1, 1, 1, 2])
            if share < 0.85:
                made += self.delivery(tag, channel, chance.choice([b"c00001", b"c00002"]))
            elif share < 0.9:
                made += b"\x08\0\0\0\0\0\0\xce"
            elif share < 0.97:
                ack = struct.pack(">IQB", 0x003C0050, chance.randrange(99), chance.randrange(2))
                made += frame(1, ack, channel)
            else:
                made += frame(1, struct.pack(">HH", 20, 41), channel)
        return made

    def entries(self, count: int) -> list[Entry]:
        """Entries as a batch may hold them, some of which no publisher could send."""
        chance = self.chance
        return [
            Entry(
                chance.randbytes(16),
                chance.choice([b"k", b"", b"order.new", b"x" * 255]),
                self.properties(),
                self.body(),
                START_MS + chance.randrange(1000),
                chance.choice([0, 0, 0, START_MS, START_MS + 5_000]),
                self.happens(0.02),
            )
            for _ in range(count)
        ]


def delivery(
    tag: int,
    properties: bytes,
    body: bytes,
    *,
    key: bytes = b"order.new",
    exchange: bytes = b"orders",
    redelivered: bool = False,
    channel: int = 1,
    consumer: bytes = b"c00001",
) -> bytes:
    """Frames of one delivery."""
    method = b"\0\x3c\0\x3c" + _short(consumer) + struct.pack(">QB", tag, redelivered)
    made = frame(1, method + _short(exchange) + _short(key), channel)
    made += frame(2, struct.pack(">HHQ", 60, 0, len(body)) + properties, channel)
    largest = FRAME_MAX - 8
    for at in range(0, len(body), largest):
        made += frame(3, body[at : at + largest], channel)
    return made


def frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text
