"""Names of the files and folders that a site's node keeps, in the site's folder.

state/              everything that the stages remember (`relay/state/node_state.py`)
ledger/             exported rows (`relay/ledger_export.py`)
ledger/revisions/   the mesh of each revision (`relay/ledger/revisions.py`)
members.json        sites of each revision (`relay/ledger/members.py`)
gaps.json, accepted-gaps/ (`gaps.py`)
holds.json, drained (`holds.py`), node.json (`process.py`), admin.token (`operator_routes.py`)
slots.json, reslot.json (`slot_record.py`, `relay/reslot/reslotting.py`)
moved.json          there once the state has gone into a cluster (`relay/cluster/moving.py`)
process.lock        held by the process that serves the site (`process.py`)

Of a site with several nodes, each node has such a folder: nodes/NODE/ in the site's. Of a node with
several slots, each slot but the first has such a folder: slots/N/ in the node's.
"""

from __future__ import annotations

from pathlib import Path

from relay.operator.site_state import SiteState

STATE = "state"
LEDGER = "ledger"
REVISIONS = "ledger/revisions"
MEMBERS = "members.json"
MOVED = "moved.json"
"""File of a site whose state has gone from here to the journal that its nodes share."""
NODES = "nodes"
SLOTS = "slots"
SLOT_MAP = "slots.json"
"""File that says which slots the states in a folder are of; not there where the node has one."""
RESLOT = "reslot.json"
"""File that is there while the slots of a site are changed."""
ANNOUNCED = "node.json"
"""File that names a node's process and its admin port."""

STANDBY = SiteState.STANDBY.value
"""State of a node, in its report, while another one runs the site."""
QUIESCED = SiteState.QUIESCED.value
"""State of a site, in its node's report, that an order has let stand with nothing under way."""


def site_folder(state: Path, site: str) -> Path:
    """Folder of one site below the state folder of all."""
    return state / "sites" / site


def slot_folder(folder: Path, slot: int) -> Path:
    """Folder of one slot of the node that has `folder`."""
    return folder / SLOTS / str(slot) if slot else folder


def slot_folders(folder: Path) -> list[Path]:
    """Folders of all slots that the node of `folder` has had, the first slot's first."""
    further = (folder / SLOTS).glob("*")
    return [folder, *sorted(further, key=lambda one: (len(one.name), one.name))]


def node_folders(folder: Path) -> list[Path]:
    """Folders of all nodes of the site that has `folder` here: the same one, unless the site has
    several.
    """
    return sorted((folder / NODES).glob("*")) or [folder]


def node_folder(state: Path, site: str, node: str) -> Path:
    """Folder of one of several nodes of a site."""
    return site_folder(state, site) / NODES / node
