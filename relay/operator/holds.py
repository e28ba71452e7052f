"""What an operator holds back at one site: the whole site, some of its links, or all but its leave.

SITES/SITE/holds.json   {"format": 1, "paused": false, "draining": false, "links": ["a-b"]}

The file is the order, and the node obeys it within seconds, also after a restart; commands write
it. A paused site takes nothing from egress and delivers nothing; its links go on, so that what
crosses it is not held up. A draining site goes on until its egress queues are empty; from then on
it receives nothing more, and what it has goes out.

SITES/SITE/drained      there as long as the node finds nothing left in a draining site; the node
                        writes it, for whoever asks when the node has ended
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from federation import durable_file

HOLDS_FILE = "holds.json"
DRAINED_FILE = "drained"
_FORMAT = 1


class HoldsBroken(Exception):
    """The file cannot be read. Delete it, and say again what is to be held."""

    def __init__(self, file: Path, reason: str) -> None:
        self.file = file
        self.reason = reason
        super().__init__(f"{file}: {reason}; delete it and say again what is to be held")


@dataclass(frozen=True, slots=True)
class Holds:
    """`links` are names of links that begin at the site."""

    paused: bool = False
    draining: bool = False
    links: frozenset[str] = frozenset()


def read_holds(folder: Path) -> Holds:
    """What is held at the site of this folder; nothing if nobody ever said so. Raises HoldsBroken,
    OSError.
    """
    file = folder / HOLDS_FILE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Holds()
    except ValueError as error:
        raise HoldsBroken(file, f"damaged: {error}") from error
    try:
        if content["format"] != _FORMAT:
            raise HoldsBroken(file, f"format {content['format']!r} is not known")
        links = frozenset(map(str, content["links"]))
        return Holds(bool(content["paused"]), bool(content["draining"]), links)
    except (KeyError, TypeError) as error:
        raise HoldsBroken(file, f"damaged: {error!r}") from error


def write_holds(folder: Path, holds: Holds) -> None:
    """From now on hold this; on the disk when it returns. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "format": _FORMAT,
        "paused": holds.paused,
        "draining": holds.draining,
        "links": sorted(holds.links),
    }
    durable_file.write(folder / HOLDS_FILE, json.dumps(content, indent=1), durable=True)


def was_drained(folder: Path) -> bool:
    """Whether the node of this folder found nothing left when it looked last."""
    return (folder / DRAINED_FILE).exists()


def mark_drained(folder: Path, is_drained: bool) -> None:
    """Leave word of it, or take that back. Raises OSError."""
    if is_drained:
        (folder / DRAINED_FILE).touch()
    else:
        (folder / DRAINED_FILE).unlink(missing_ok=True)
