"""Which boot of the machine this is: after another one, unsynced writes may be gone."""

from __future__ import annotations

import uuid
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's ID of this boot; a new random one where there is none, which trusts nothing."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return str(uuid.uuid4())
