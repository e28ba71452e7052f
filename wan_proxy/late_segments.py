"""Pure: which segments of a byte stream are lost at first and sent again."""

import math
import random
from collections.abc import Iterator

from wan_proxy.condition import SEGMENT_BYTES


class LateSegments:
    """Marks a fraction of a stream's segments, by their place in the stream.

    One draw for each marked segment (how many go before it) instead of one for each segment: the
    same seed marks the same bytes however the stream is cut into chunks.
    """

    __slots__ = ("_bytes_until", "_fraction", "_random")

    def __init__(self, fraction: float, rng: random.Random) -> None:
        self._random = rng
        self._fraction = 0.0
        self._bytes_until = 0
        self.change(fraction)

    def change(self, fraction: float) -> None:
        """Another fraction, 0 up to below 1, from the next byte on."""
        if fraction != self._fraction:
            self._fraction = fraction
            self._bytes_until = self._draw()

    def split(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """The chunk in pieces, each with whether it is late: a late piece begins where its segment
        begins, and what follows it is not late by itself."""
        start = 0
        while self._fraction and len(chunk) - start > self._bytes_until:
            if self._bytes_until:
                yield chunk[start : start + self._bytes_until], False
                start += self._bytes_until
            end = min(len(chunk), start + SEGMENT_BYTES)
            yield chunk[start:end], True
            # The rest of a segment that goes over the chunk's end rides on the order kept behind.
            self._bytes_until = SEGMENT_BYTES - (end - start) + self._draw()
            start = end
        if start < len(chunk):
            self._bytes_until -= len(chunk) - start
            yield (chunk[start:] if start else chunk), False

    def _draw(self) -> int:
        if not self._fraction:
            return 0
        on_time = int(math.log(1.0 - self._random.random()) / math.log(1.0 - self._fraction))
        return on_time * SEGMENT_BYTES
