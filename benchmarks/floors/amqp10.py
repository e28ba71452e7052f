"""Publishing by AMQP 1.0, which is RabbitMQ's own from 4.0 on: no more of it than is needed here.

The broker's link credit (170 by default) bounds what is unsettled, not we.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

from benchmarks.floors.amqp import BODY
from benchmarks.floors.site import Site

_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION = range(0x10, 0x16)
_DETACH, _CLOSE = 0x16, 0x18
_SASL_INIT, _SASL_OUTCOME = 0x41, 0x44
_ACCEPTED = 0x24
_NULL, _TRUE, _FALSE = b"\x40", b"\x41", b"\x42"
_WINDOW = 1 << 20
_WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
_READ_BYTES = 256 * 1024


def _uint(number: int) -> bytes:
    return b"\x70" + number.to_bytes(4, "big")


def _text(text: bytes, code: int = 0xB1) -> bytes:
    """A string; 0xB3: a symbol, 0xB0: a binary."""
    return bytes([code]) + len(text).to_bytes(4, "big") + text


def _list(kind: int, *fields: bytes) -> bytes:
    """A described list."""
    data = b"".join(fields)
    size = (len(data) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
    return b"\x00\x53" + bytes([kind]) + b"\xd0" + size + data


def _frame(what: bytes, payload: bytes = b"", *, sasl: bool = False) -> bytes:
    size = 8 + len(what) + len(payload)
    return size.to_bytes(4, "big") + bytes([2, sasl, 0, 0]) + what + payload


def _value(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes of the value there, without its size; where the next one is."""
    if data[at] == 0:
        _, at = _value(data, at + 1)
        return _value(data, at)
    code, at = data[at], at + 1
    width = _WIDTHS.get(code >> 4)
    if width == 0:
        return (b"\x01" if code == _TRUE[0] else b""), at
    if width is None:
        prefix = 4 if code >> 4 in (0xB, 0xD, 0xF) else 1
        width = int.from_bytes(data[at : at + prefix], "big")
        at += prefix
    return data[at : at + width], at + width


def _performative(frame: bytes) -> tuple[int, list[bytes]]:
    """Return a frame's performative code and fields, as bytes: numbers are big-endian, null and
    zero are empty.
    """
    body = frame[frame[4] * 4 :]
    kind, at = _value(body, 1)
    data, _ = _value(body, at)
    prefix = {0x4: 0, 0xC: 1, 0xD: 4}[body[at] >> 4]
    fields, within = [], prefix
    while within < len(data):
        one, within = _value(data, within)
        fields.append(one)
    return int.from_bytes(kind, "big"), fields


class _Sender:
    """One link of one session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.settled = self._session = self._link = 0
        """Messages in all: settled, and what session and link have room for."""
        self.writer = writer
        self._reader = reader
        self._buffer = b""

    @property
    def may_send(self) -> int:
        """Messages in all."""
        return min(self._session, self._link)

    async def log_in(self, user: str, password: str) -> None:
        self.writer.write(b"AMQP\x03\x01\x00\x00")
        await self._reader.readexactly(8)
        answer = _text(f"\0{user}\0{password}".encode(), 0xB0)
        self.writer.write(_frame(_list(_SASL_INIT, _text(b"PLAIN", 0xB3), answer), sasl=True))
        while True:
            size = await self._reader.readexactly(4)
            frame = size + await self._reader.readexactly(int.from_bytes(size, "big") - 4)
            kind, fields = _performative(frame)
            if kind == _SASL_OUTCOME:
                assert not int.from_bytes(fields[0], "big"), "the broker refuses the login"
                break
        self.writer.write(b"AMQP\x00\x01\x00\x00")
        await self._reader.readexactly(8)

    def attach(self, address: str) -> None:
        window = _uint(_WINDOW)
        source, target = _list(0x28), _list(0x29, _text(address.encode()))
        modes = b"\x50\x00", b"\x50\x00"  # unsettled, and the receiver settles first
        link = _text(b"floors"), _uint(0), _FALSE, *modes, source, target, _NULL, _NULL, _uint(0)
        for what in (
            _list(_OPEN, _text(b"floors"), _text(b"vhost:/"), _uint(_WINDOW)),
            _list(_BEGIN, _NULL, _uint(0), window, window, _uint(255)),
            _list(_ATTACH, *link),
        ):
            self.writer.write(_frame(what))

    async def more(self) -> None:
        """Take in what the broker says next."""
        data = await self._reader.read(_READ_BYTES)
        assert data, "the broker ended the connection"
        for kind, fields in self._frames(data):
            numbers = [int.from_bytes(each[:8], "big") for each in fields]
            if kind == _FLOW:
                self._session = numbers[0] + numbers[1]
                if fields[6:] and fields[6]:  # else it tells of the session alone
                    self._link = numbers[5] + numbers[6]
            elif kind == _DISPOSITION:
                last = numbers[2] if fields[2:] and fields[2] else numbers[1]
                self.settled += last - numbers[1] + 1
            elif kind in (_DETACH, 0x17, _CLOSE):
                raise ConnectionError(f"the broker ends it: {fields!r}")

    def _frames(self, data: bytes) -> Iterator[tuple[int, list[bytes]]]:
        data, at = self._buffer + data, 0
        while len(data) - at >= 4:
            end = at + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if end - at > 8:
                yield _performative(data[at:end])
            at = end
        self._buffer = data[at:]


@dataclass(frozen=True)
class Publishing10:
    """Publishing by AMQP 1.0, at most `group` messages a write."""

    group: int = 64

    async def run(self, site: Site, kind: str, count: int) -> None:
        where = site.stream.host, site.amqp_port
        sender = _Sender(*await asyncio.open_connection(*where))
        await sender.log_in(site.user, site.stream.password)
        exchange = quote(f"{kind}.topic", safe="")
        sender.attach(f"/exchanges/{exchange}/{quote(kind, safe='')}")
        durable, message_id = _list(0x70, _TRUE), _list(0x73, _text(b"0" * 36))
        message = durable + message_id + b"\x00\x53\x75" + _text(BODY, 0xB0)
        sent = 0
        while sender.settled < count:
            number = min(self.group, count - sent, sender.may_send - sent)
            if number > 0:
                sender.writer.write(
                    b"".join(_transfer(sent + nth, message) for nth in range(number))
                )
                sent += number
                await asyncio.sleep(0)
            else:
                await sender.more()
        sender.writer.write(_frame(_list(_CLOSE)))
        sender.writer.close()


def _transfer(number: int, message: bytes) -> bytes:
    tag = _text(number.to_bytes(4, "big"), 0xB0)
    return _frame(_list(_TRANSFER, _uint(0), _uint(number), tag, _uint(0), _FALSE), message)
