"""Gives big blocks of memory back to the system when they are freed."""

from __future__ import annotations

import ctypes

BIG_BYTES = 512 * 1024
"""Above what the hot path takes for small messages: such a block costs 50 us of page faults."""

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def give_back_big_blocks() -> bool:
    """Have glibc map blocks from BIG_BYTES on one by one. False with another C library.

    By default it raises that limit to the biggest block that was ever freed, so that after one
    message of 15 MiB blocks of megabytes come to lie between small ones, and stay the process's:
    a third of a node's memory under such messages.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, BIG_BYTES) and mallopt(_M_TRIM_THRESHOLD, 2 * BIG_BYTES))
