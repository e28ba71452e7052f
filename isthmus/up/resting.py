"""Sites whose nodes rest, by `isthmus down --site`, while the rest of a mesh runs.

A file in the site's folder says so: to the supervisor, which then plans no nodes of the site, and
to `isthmus status`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from federation import durable_file
from relay.node.site_folder import site_folder

RESTS_FILE = "rests"


def rest(state: Path, site: str) -> None:
    """Have the nodes of a site rest from the supervisor's next look on. Raises OSError."""
    folder = site_folder(state, site)
    folder.mkdir(parents=True, exist_ok=True)
    durable_file.write(folder / RESTS_FILE, "by isthmus down --site; isthmus up ends it\n")


def rests(state: Path, site: str) -> bool:
    """Return True if the nodes of a site are to rest."""
    return (site_folder(state, site) / RESTS_FILE).exists()


def rouse(state: Path, sites: Collection[str]) -> None:
    """Have the nodes of these sites run from the supervisor's next look on. Raises OSError."""
    for site in sites:
        (site_folder(state, site) / RESTS_FILE).unlink(missing_ok=True)
