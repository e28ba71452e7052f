"""What a site's node keeps, by name, in the site's folder.

state/              all that the stages remember (`relay/state/node_state.py`)
ledger/             rows that were exported (`relay/ledger_files/export.py`)
ledger/revisions/   the mesh of each revision (`relay/ledger/revisions.py`)
members.json        who was in which revision (`relay/ledger/members.py`)
gaps.json, accepted-gaps/ (`gaps.py`)
holds.json, drained (`holds.py`), node.json (`process.py`), admin.token (`mending_routes.py`)
process.lock        held by the process that serves the site (`process_lock.py`)
"""

from __future__ import annotations

from pathlib import Path

STATE = "state"
LEDGER = "ledger"
REVISIONS = "ledger/revisions"
MEMBERS = "members.json"


def site_folder(state: Path, site: str) -> Path:
    """Everything that a site's node keeps."""
    return state / "sites" / site
