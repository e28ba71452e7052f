"""IDs of traces and spans, by hashes of what every site knows of a batch.

A batch's name is unique in its mesh, for good. So each site computes the batch's trace, its own
spans and their parents by itself, and neither a byte of the batch nor of the log is for tracing.
"""

from __future__ import annotations

from hashlib import blake2b

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


def trace_id_of(mesh: str, batch: str) -> int:
    """ID of the trace of a batch, given the batch's name as text."""
    return _hash((mesh, batch), TRACE_ID_BYTES)


def span_id_of(trace_id: int, stage: str, *places: str) -> int:
    """ID of the span of a stage in a batch's trace; `places` tell spans of a stage apart."""
    return _hash((f"{trace_id:032x}", stage, *places), SPAN_ID_BYTES)


def _hash(texts: tuple[str, ...], size: int) -> int:
    digest = blake2b("\0".join(texts).encode(), digest_size=size).digest()
    return int.from_bytes(digest) or 1  # 0 stands for no ID
