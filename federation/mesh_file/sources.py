"""The files that a mesh file is made of: itself, those that it includes, tables of branches."""

from __future__ import annotations

from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path

from federation.mesh_file.yaml_tree import MAX_BYTES


class Unreadable(Exception):
    """A file that cannot be read; `said` is the system's reason."""

    def __init__(self, said: str) -> None:
        self.said = said
        super().__init__(said)


@dataclass(frozen=True, slots=True)
class Source:
    """One of them. `shown` is its name in messages; the mesh file itself has none there."""

    path: Path
    shown: str
    wanted: list[Path] = field(default_factory=list, repr=False, compare=False)
    """Of this file and all that were found beside it: what was to be read, in order."""

    def beside(self, name: str) -> Source:
        """Another file, named relative to this one."""
        shown = normpath(Path(self.shown).parent / name)
        return Source(self.path.parent / name, shown, self.wanted)

    def read(self) -> bytes:
        """Its content, or one byte more than is taken of it: a huge file is refused, not read.
        Raises Unreadable.
        """
        self.wanted.append(self.path)
        try:
            with self.path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error)
            raise Unreadable(said.lower()) from error
