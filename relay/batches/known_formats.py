"""Which formats of batches and links a node reads: its own, and the one before.

A format here is how bytes are laid out that other nodes read, perhaps older ones: batches, which
stand in every site's log, and what the two ends of a link say (`batches.format` and `links.wire`
have the layouts). Each version of this program reads its newest and the one before it. What it
writes is agreed on: between the two ends of a link by themselves, when a session begins; for
batches by the mesh file (`batch_format:`), since a batch goes on to sites that its origin never
hears of.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.mesh import NEWEST_BATCH_FORMAT, OLDEST_BATCH_FORMAT

OLDEST_LINK_VERSION = 1
NEWEST_LINK_VERSION = 2


@dataclass(frozen=True, slots=True)
class Formats:
    """What a node reads: both ends included."""

    oldest_batch: int = OLDEST_BATCH_FORMAT
    newest_batch: int = NEWEST_BATCH_FORMAT
    oldest_link: int = OLDEST_LINK_VERSION
    newest_link: int = NEWEST_LINK_VERSION

    @property
    def told(self) -> dict[str, list[int]]:
        """For status: oldest and newest of each."""
        return {
            "batch": [self.oldest_batch, self.newest_batch],
            "link": [self.oldest_link, self.newest_link],
        }

    def common_link_version(self, other: Formats) -> int | None:
        """The newest that both know; None if there is none."""
        newest = min(self.newest_link, other.newest_link)
        return newest if newest >= max(self.oldest_link, other.oldest_link) else None


FIRST = Formats(1, 1, 1, 1)
"""Those of the first release, which does not tell of itself what it reads."""
KNOWN = Formats()
"""All that this version of the program reads."""


def as_before(formats: Formats = KNOWN) -> Formats:
    """Those of the version before this one: what a node knows that is run as that one was."""
    return Formats(
        formats.oldest_batch,
        max(formats.oldest_batch, formats.newest_batch - 1),
        formats.oldest_link,
        max(formats.oldest_link, formats.newest_link - 1),
    )
