"""Messages of a measurement: heads, properties and bodies.

A body begins with a head, little-endian; sequences count from 0 for each origin; the rest is
filling.

    8 run   4 origin   4 zero   8 sequence   8 sent at (ns of this machine's monotonic clock)
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Sequence
from typing import Protocol

HEAD = struct.Struct("<8sI4xQQ")
HEAD_BYTES = HEAD.size
RUN_BYTES = 8

_PERSISTENT_WITH_ID = b"\x10\x80\x02\x24"
"""Property flags, delivery mode 2, and the length of a UUID's text."""


def messages(
    exchange: str,
    key: bytes,
    run: bytes,
    origin: int,
    first: int,
    sent_at_ns: Sequence[int],
    tails: Sequence[bytes],
) -> list[tuple[str, bytes, bytes, bytes]]:
    """Return messages numbered from `first`, in a publisher's form, one for each tail and due time.

    The message ID is a UUID of run, origin and sequence.
    """
    pack = HEAD.pack
    prefix = _PERSISTENT_WITH_ID + id_prefix(run, origin)
    return [
        (exchange, key, b"%s%012x" % (prefix, number), pack(run, origin, number, at) + tail)
        for number, at, tail in zip(
            range(first, first + len(tails)), sent_at_ns, tails, strict=True
        )
    ]


def id_prefix(run: bytes, origin: int) -> bytes:
    """Return the beginning of an origin's message IDs; twelve hexadecimal digits follow."""
    word = run.hex()
    return f"{word[:8]}-{word[8:12]}-4{word[13:16]}-a{origin % 0x1000:03x}-".encode()


_BIG_BYTES = 64 * 1024
_POOL_BYTES = 8 * 1024 * 1024


class Bodies(Protocol):
    """Source of bodies."""

    @property
    def mean_bytes(self) -> int:
        """Mean size of a body, head included."""
        ...

    def take(self, count: int) -> list[bytes]:
        """Return `count` further bodies without heads."""
        ...


class Noise:
    """Bodies of `size` bytes, heads included, of which `share` is noise and the rest zeros.

    Noise beyond 64 KiB comes out of a pool at random offsets: no compression looks so far back, and
    fresh noise would cost more than sending.
    """

    def __init__(self, size: int, share: float = 1.0) -> None:
        if size < HEAD_BYTES:
            raise ValueError(f"a message of a measurement has at least {HEAD_BYTES} bytes")
        self._noise = round((size - HEAD_BYTES) * share)
        self._zeros = bytes(size - HEAD_BYTES - self._noise)
        self._pool = os.urandom(_POOL_BYTES + self._noise) if self._noise > _BIG_BYTES else b""
        self._size = size

    @property
    def mean_bytes(self) -> int:
        return self._size

    def take(self, count: int) -> list[bytes]:
        width, zeros = self._noise, self._zeros
        if self._pool:
            begins = [random.randrange(_POOL_BYTES) for _ in range(count)]
            return [self._pool[at : at + width] + zeros for at in begins]
        noise = os.urandom(width * count)
        return [noise[at * width : (at + 1) * width] + zeros for at in range(count)]


class HalfRandom(Noise):
    """Half noise, half zeros: about as compressible as a typical message."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 0.5)
