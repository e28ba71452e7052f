"""NATS' text protocol in bulk: bytes of a client's operations, and operations of a server.

    PUB subject [reply] size\\r\\npayload\\r\\n
    HPUB subject [reply] header-size total-size\\r\\nheader payload\\r\\n
    MSG subject sid [reply] size\\r\\npayload\\r\\n
    HMSG subject sid [reply] header-size total-size\\r\\nheader payload\\r\\n

Pure. A load that awaits a publish and a callback for each message is taken to cost more than both
servers do (33 us a message together); the usual client for Python was not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from isthmus.load.messages import HEAD, id_prefix

_WORDS = {b"MSG": 4, b"HMSG": 5}
"""Number of words without a reply subject."""
_ID_HEADER = b"NATS/1.0\r\nNats-Msg-Id: "
_ID_BYTES = 36
_HEADER_BYTES = len(_ID_HEADER) + _ID_BYTES + 4


class Message(NamedTuple):
    """Message from a server; `header` is empty where there is none."""

    sid: bytes
    reply: bytes
    header: bytes
    payload: bytes


class NatsServerError(Exception):
    """Error that a server reports on a connection (`-ERR`), mostly just before closing it."""


class Parser:
    """Operations of a server out of its bytes."""

    def __init__(self) -> None:
        self.pings = 0
        """Number of pings so far, which want a pong each."""
        self.info = b""
        """Server's latest description of itself, as JSON."""
        self._left = b""

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are whole by now. Raises NatsServerError."""
        data = self._left + data
        at, messages = 0, []
        while (end := data.find(b"\r\n", at)) >= 0:
            words = data[at:end].split(b" ")
            usual = _WORDS.get(words[0])
            if usual is None:
                self._note(data[at:end])
                at = end + 2
                continue
            begin = end + 2
            behind = begin + int(words[-1])
            if len(data) < behind + 2:
                break
            body = begin + int(words[-2]) if words[0] == b"HMSG" else begin
            reply = words[3] if len(words) > usual else b""
            messages.append(Message(words[2], reply, data[begin:body], data[body:behind]))
            at = behind + 2
        self._left = data[at:]
        return messages

    def _note(self, line: bytes) -> None:
        if line == b"PING":
            self.pings += 1
        elif line.startswith(b"INFO "):
            self.info = line[5:]
        elif line.startswith(b"-ERR"):
            raise NatsServerError(line.decode())


def publication(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    """Return the operation that publishes a payload."""
    return b"PUB %s %s %d\r\n%s\r\n" % (subject, reply, len(payload), payload)


def acknowledgements(messages: Sequence[Message]) -> bytes:
    """Return the operations that acknowledge each of these messages of a stream."""
    return b"".join([b"PUB %s 4\r\n+ACK\r\n" % message.reply for message in messages])


class LoadWriter:
    """Writer of the messages of a measurement; see `isthmus.load.messages`.

    Each has its ID in the header by which a stream recognises duplicates.
    """

    def __init__(self, subject: bytes, reply: bytes, run: bytes, origin: int) -> None:
        self._begin = b"HPUB %s %s %d " % (subject, reply, _HEADER_BYTES)
        self._id = _ID_HEADER + id_prefix(run, origin)
        self._run, self._origin = run, origin

    def publications(self, first: int, times_ns: Sequence[int], tails: Sequence[bytes]) -> bytes:
        """Return the operations for messages numbered from `first`."""
        begin, begin_id, run, origin = self._begin, self._id, self._run, self._origin
        pack, more = HEAD.pack, _HEADER_BYTES + HEAD.size
        return b"".join(
            [
                b"%s%d\r\n%s%012x\r\n\r\n%s%s\r\n"
                % (begin, more + len(tail), begin_id, number, pack(run, origin, number, at), tail)
                for number, at, tail in zip(
                    range(first, first + len(tails)), times_ns, tails, strict=True
                )
            ]
        )
