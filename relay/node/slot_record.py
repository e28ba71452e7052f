"""Record, in a node's folder, of the slots that the states there are of.

Logs and states cannot be cut otherwise while a node runs, nor by a changed file before its start:
an exchange would be in another slot than its messages under way, out of order and judged by another
barrier.
"""

from __future__ import annotations

import json
from pathlib import Path

from federation import durable_file
from federation.slots import ONE_SLOT, SlotMap
from relay.node.site_folder import SLOT_MAP, STATE
from relay.node.start import NodeStopped


def keep_slots(folder: Path, site: str, slots: SlotMap) -> None:
    """Write down the slots of a new site, which has no states in its folder yet. Raises NodeStopped
    if the states are of other slots, or nobody can tell, OSError.
    """
    kept = _kept(folder)
    if kept is None and not (folder / STATE).exists():
        if not slots.is_whole:
            folder.mkdir(parents=True, exist_ok=True)
            content = {"count": slots.count, "place": dict(slots.place)}
            durable_file.write(folder / SLOT_MAP, json.dumps(content), durable=True)
        return
    kept = kept or ONE_SLOT
    if kept != slots:
        raise NodeStopped(
            f"the mesh file cuts {site} into {_text(slots)}, its states in {folder} are of"
            f" {_text(kept)}: put `slots` and `place` of the site back"
        )


def _kept(folder: Path) -> SlotMap | None:
    file = folder / SLOT_MAP
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return SlotMap(int(content["count"]), {**content["place"]})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise NodeStopped(f"{file} cannot be read: {error}; put it back from a copy") from error


def _text(slots: SlotMap) -> str:
    placed = ", ".join(f"{name} in {slot}" for name, slot in sorted(slots.place.items()))
    count = "one slot" if slots.is_whole else f"{slots.count} slots"
    return f"{count} ({placed})" if placed else count
