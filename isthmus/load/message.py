"""How a message of a measurement begins, and its properties.

::

    8 run   4 origin   4 zero   8 sequence   8 sent at (ns of this machine's monotonic clock)

All little-endian. Sequences count from 0 for each origin. The rest of the body is anything.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

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
    """Numbered from `first`: one for each tail, due or sent at these times. What a publisher takes.

    Each has a UUID as its message ID, made of run, origin and sequence.
    """
    pack = HEAD.pack
    word = run.hex()
    prefix = f"{word[:8]}-{word[8:12]}-4{word[13:16]}-a{origin % 0x1000:03x}-".encode()
    prefix = _PERSISTENT_WITH_ID + prefix
    return [
        (exchange, key, b"%s%012x" % (prefix, number), pack(run, origin, number, at) + tail)
        for number, at, tail in zip(
            range(first, first + len(tails)), sent_at_ns, tails, strict=True
        )
    ]
