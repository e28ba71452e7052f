"""Formats of batches and links that a node reads: its own, and the one before.

A format is the layout of bytes that other nodes read, perhaps older ones: batches, which stand in
every site's log, and the frames between the two ends of a link (`batches.format` and `links.wire`
have the layouts). Each version of the program reads its newest format and the one before. The
format to write is agreed on: by the two ends of a link when a session begins; for batches in the
mesh file (`batch_format:`), since a batch goes on to sites that its origin never hears of.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.mesh import NEWEST_BATCH_FORMAT, OLDEST_BATCH_FORMAT

OLDEST_LINK_VERSION = 1
NEWEST_LINK_VERSION = 3


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats that a node reads; both bounds included."""

    oldest_batch: int = OLDEST_BATCH_FORMAT
    newest_batch: int = NEWEST_BATCH_FORMAT
    oldest_link: int = OLDEST_LINK_VERSION
    newest_link: int = NEWEST_LINK_VERSION

    @property
    def ranges(self) -> dict[str, list[int]]:
        """Oldest and newest format of batches and links, for status."""
        return {
            "batch": [self.oldest_batch, self.newest_batch],
            "link": [self.oldest_link, self.newest_link],
        }

    def common_link_version(self, other: Formats) -> int | None:
        """Newest link version that both read, or None if there is none."""
        newest = min(self.newest_link, other.newest_link)
        return newest if newest >= max(self.oldest_link, other.oldest_link) else None


FIRST = Formats(1, 1, 1, 1)
"""Formats of the first release, whose nodes do not announce their formats."""
KNOWN = Formats()
"""Formats that this version of the program reads."""


def as_before(formats: Formats = KNOWN) -> Formats:
    """Formats of the version before this program's: for a node that runs as that version did."""
    return Formats(
        formats.oldest_batch,
        max(formats.oldest_batch, formats.newest_batch - 1),
        formats.oldest_link,
        max(formats.oldest_link, formats.newest_link - 1),
    )
