"""What a link's receiver looks at in a batch that came, before its log is asked. Pure."""

from __future__ import annotations

from relay.batches.batch import BatchHeader
from relay.batches.format import MAX_PATH_SITES, BadBatch, read_header, verify_digest
from relay.batches.known_formats import Formats
from relay.links.wire import BatchFrame, path_matches


class Damaged(BadBatch):
    """Another copy of it may be better."""


def intact_header(said: BatchFrame, frame: bytes, formats: Formats) -> BatchHeader:
    """The header of a batch that came as it was sent. Raises UnknownFormat, Damaged."""
    try:
        header = read_header(said.batch, formats.newest_batch)
        verify_digest(said.batch)
    except BadBatch as error:
        raise Damaged(error.reason) from error
    if not path_matches(frame, said.check, header.path):
        raise Damaged("the path or the frame's head is damaged")
    return header


def refuse_if_not_ours(header: BatchHeader, own: str, neighbour: str) -> None:
    """Raise BadBatch unless the neighbour was to send it here. Both are cluster IDs."""
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
