"""Servers of other ways, which no package of the system has: fetched into `.bench` when missing."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
_FOLDER = _TOP / ".bench"
NATS_SERVER = _FOLDER / "nats-server"
KAFKA_JARS = _FOLDER / "kafka"
PACKAGES = _TOP / ".tools" / "bench"
"""Python packages that only clients of these servers need."""
_PINS = {
    "nats": ("nats/go.mod", r"nats-server/v2 v([\d.]+)"),
    "kafka": ("kafka/pom.xml", r"<kafka.version>([\d.]+)<"),
}
"""File and place in it that says the version."""


class DownloadError(Exception):
    """Failure to fetch or build a server."""


def version(product: str) -> str:
    """Return the version of `nats` or `kafka` that is fetched."""
    file, pattern = _PINS[product]
    found = re.search(pattern, (Path(__file__).parent / file).read_text())
    assert found is not None
    return found[1]


async def download(product: str) -> None:
    """Fetch `nats` or `kafka` unless there. Raises DownloadError, whose text says what to do."""
    script = await asyncio.create_subprocess_exec(
        *(str(_TOP / "scripts" / "setup-bench.sh"), product), stderr=asyncio.subprocess.PIPE
    )
    _, reason = await script.communicate()
    if script.returncode:
        raise DownloadError(reason.decode().strip())
