"""Seam to a site's content store: chunks of large contents, each kept for a time by a quorum.

A content is named by its digest (`reference`), so a chunk has one value for good, and may be
written again and by anybody. Nothing is deleted: each chunk expires.

Twins: `memory_content.MemoryContent` and `cassandra_content.CassandraContent`; one contract suite
runs over both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

CHUNK_BYTES = 512 * 1024


class ContentAway(Exception):
    """The store did not carry out a request, or nobody knows: the same call may be made again."""


class ContentStore(Protocol):
    """Chunks of contents. Every method may raise ContentAway."""

    async def lives(self, content_id: bytes) -> Mapping[int, int]:
        """Return the seconds that each chunk of a content still has, by the chunk's number. What is
        returned here, any quorum has from then on.
        """
        ...

    async def write(self, content_id: bytes, number: int, chunk: bytes, life_s: int) -> None:
        """Write a chunk to a quorum, to expire after `life_s`. A chunk written again lives for as
        long as the last write says.
        """
        ...

    async def read(self, content_id: bytes, number: int) -> bytes | None:
        """Return a chunk, or None if a quorum does not have it (any more)."""
        ...
