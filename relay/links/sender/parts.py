"""Functions of its node that a link's sender calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay.batches.batch import BatchHeader, Place
from relay.tracing.batch_trace import LinkTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderParts:
    """Functions of its node that a link's sender calls."""

    random: Callable[[], float]
    """Return a number in [0, 1), for jitter."""
    random_bytes: Callable[[int], bytes]
    """Return so many random bytes, for nonces."""
    is_void: Callable[[BatchHeader], bool] = lambda header: False
    """Return True if the batch's incarnation had ended before the batch."""
    safe_place: Callable[[Place | None], Place | None] = lambda place: place
    """Return the last place up to the given one of which the log is certain: all before was read,
    and nothing found later will stand there."""
    members: Callable[[str], bytes | None] = lambda revision: None
    """Return the encoded sites of a revision, or None if they are unknown."""
    comes_otherwise: Callable[[BatchHeader], bool] = lambda header: False
    """Return True if the receiver may get the batch otherwise than by this link."""
    trace: LinkTrace | None = None
    """Reports of sent batches, or None while nothing is traced."""
