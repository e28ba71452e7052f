"""Provenance of a measurement: commit, machine, versions."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isthmus.brokers.installation import RabbitMQInstallation

_HERE = Path(__file__).resolve().parent


def commit() -> str:
    """Return the checked out commit, with a `+` if files differ from it; empty without git."""
    words = ("git", "-C", str(_HERE), "describe", "--always", "--dirty=+", "--exclude=*")
    try:
        told = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return told.stdout.strip()


def described(
    installation: RabbitMQInstallation, products: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the provenance of a row's measurement for its document; `products` are the versions
    of other servers by way.
    """
    return {
        "commit": commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
            "kernel": platform.release(),
        },
        "versions": {
            "rabbitmq": installation.version,
            "python": platform.python_version(),
            **(products or {}),
        },
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
