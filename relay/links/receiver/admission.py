"""Checks of a batch that arrived, before the receiver's log is asked, and limits on what is
refused. Pure.
"""

from __future__ import annotations

from relay.batches.batch import BatchHeader
from relay.batches.format import MAX_PATH_SITES, BadBatch, read_header, verify_digest
from relay.batches.known_formats import Formats
from relay.links.settings import LinkSettings
from relay.links.wire import BatchFrame, path_matches

_MOST_REASONS = 256


class Damaged(BadBatch):
    """Damaged copy: another copy may be good."""


def intact_header(received: BatchFrame, frame: bytes, formats: Formats) -> BatchHeader:
    """Return the header of a batch that arrived as it was sent. Raises UnknownFormat, Damaged."""
    try:
        header = read_header(received.batch, formats.newest_batch)
        verify_digest(received.batch)
    except BadBatch as error:
        raise Damaged(error.reason) from error
    if not path_matches(frame, received.check, header.path):
        raise Damaged("the path or the frame's head is damaged")
    return header


def refuse_if_not_ours(header: BatchHeader, own: str, neighbour: str) -> None:
    """Raise BadBatch unless the neighbour was to send the batch here. Names are cluster IDs."""
    if header.path[-1] != neighbour:
        raise BadBatch(
            f"its path ends at {header.path[-1]!r}, and it came from {neighbour!r}: "
            "do both sites have the same mesh file?"
        )
    if own in header.path:
        raise BadBatch(f"{own!r}, this site, has had it: it is on its path")
    if len({*header.path}) < len(header.path):
        raise BadBatch("its path has a site twice")
    if len(header.path) >= MAX_PATH_SITES:
        raise BadBatch(f"its path of {len(header.path)} sites has no room for {own!r}")


class UndecidedOrigins:
    """Batches whose origin only a newer mesh file can decide: how long each reason has been waited
    for.

    Files do not reach all sites at once. But where no such file will ever come (a site joins, and
    logs have batches of a site that had left before; a key was taken out at different times), a
    link must not stand for good.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._since: dict[str, float] = {}

    def is_over(self, reason: str, now: float) -> bool:
        """Return True if the reason has been waited for long enough."""
        since = self._since.setdefault(reason, now)
        if len(self._since) > _MOST_REASONS:
            del self._since[next(iter(self._since))]
        return now - since >= self._most_s


class RefusalBudget:
    """Budget of one neighbour's refused batches that go into the quarantine: a token bucket of
    batches and one of bytes, both full again after a day.

    The quarantine is for a person, and a neighbour that sends nothing else would fill the disk at
    the speed of the line. Batches beyond the budget are refused and only counted; the neighbour,
    who may have got them from others, has them.
    """

    def __init__(self, settings: LinkSettings) -> None:
        self._most = (float(settings.refused_batches), float(settings.refused_bytes))
        self._left = self._most
        self._within_s = settings.refused_within_s
        self._at = 0.0

    def keeps(self, nbytes: int, now: float) -> bool:
        """Return True if a refused batch of so many bytes is kept; the batch is then deducted."""
        self._fill(now)
        batches, left = self._left
        if batches < 1 or left < 0:
            return False
        self._left = (batches - 1, left - nbytes)
        return True

    def _fill(self, now: float) -> None:
        part = max(0.0, now - self._at) / self._within_s
        self._at = max(self._at, now)
        batches, left = (
            min(most, left + most * part) for most, left in zip(self._most, self._left, strict=True)
        )
        self._left = (batches, left)
