"""Record of the slots that a site's states are of: in the folder of its node, or in its keyspace.

Logs and states cannot be cut otherwise while a node runs, nor by a changed file before its start:
an exchange would be in another slot than its messages under way, out of order and judged by another
barrier.
"""

from __future__ import annotations

import json
from pathlib import Path

from federation import durable_file
from federation.slots import ONE_SLOT, SlotMap
from relay.node.site_folder import RESLOT, SLOT_MAP, STATE
from relay.node.start import NodeStopped

RUN_AGAIN = "run `isthmus reslot` again, with the same slots"


def keep_slots(folder: Path, site: str, slots: SlotMap) -> None:
    """Write down the slots of a new site, which has no states in its folder yet. Raises NodeStopped
    if the states are of other slots, or nobody can tell, OSError.
    """
    if (folder / RESLOT).exists():
        raise NodeStopped(f"a change of the slots of {site} was cut short: {RUN_AGAIN}")
    if not (folder / SLOT_MAP).exists() and not (folder / STATE).exists():
        if not slots.is_whole:
            folder.mkdir(parents=True, exist_ok=True)
            record_slots(folder, slots)
        return
    check_slots(site, slots, kept_slots(folder), f"its states in {folder}")


def check_slots(site: str, slots: SlotMap, kept: SlotMap, states: str) -> None:
    """Raise NodeStopped if a site's slots are not those `kept`, of which the `states` are."""
    if kept != slots:
        raise NodeStopped(
            f"the mesh file cuts {site} into {slots}, {states} are of {kept}: put `slots` and"
            " `place` of the site back; `isthmus reslot` changes them"
        )


def slots_as_text(slots: SlotMap) -> str:
    """Encode slots for a record."""
    return json.dumps({"count": slots.count, "place": dict(slots.place)}, sort_keys=True)


def slots_of_text(text: str) -> SlotMap:
    """Decode a record. Raises ValueError, KeyError, TypeError."""
    content = json.loads(text)
    return SlotMap(int(content["count"]), {**content["place"]})


def record_slots(folder: Path, slots: SlotMap) -> None:
    """Write down which slots the states in a folder are of; on the disk on return."""
    if slots.is_whole:
        (folder / SLOT_MAP).unlink(missing_ok=True)
        durable_file.sync(folder)
    else:
        durable_file.write(folder / SLOT_MAP, slots_as_text(slots), durable=True)


def kept_slots(folder: Path) -> SlotMap:
    """Return the slots that the states in a folder are of. Raises NodeStopped for a damaged
    record.
    """
    file = folder / SLOT_MAP
    try:
        return slots_of_text(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ONE_SLOT
    except (ValueError, KeyError, TypeError) as error:
        raise NodeStopped(f"{file} cannot be read: {error}; put it back from a copy") from error
