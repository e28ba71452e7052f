"""In words: which nodes do not run the mesh file as it is now, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def revisions_told(revision: str, sites: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """`revision` is the file's, `sites` what the nodes say of themselves; those that do not answer
    say nothing here.
    """
    said = [
        f"{name}: the mesh file is not taken up: {site['file_problem']}"
        for name, site in sites.items()
        if site.get("file_problem")
    ]
    running: dict[str, list[str]] = {}
    for name, site in sites.items():
        if site.get("revision"):
            running.setdefault(site["revision"], []).append(name)
    if len(running) > 1:
        parts = [
            f"{one}{' (the file)' if one == revision else ''}: {_names(names)}"
            for one, names in running.items()
        ]
        said.append(f"nodes run different revisions of the mesh file: {'; '.join(parts)}")
    elif running and revision not in running:
        (other,) = running
        said.append(
            f"the nodes run revision {other}, the file is at {revision}: they take it up within "
            "seconds, if it is the file that they watch"
        )
    return said


def _names(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
