"""A mistake of the product, made in a copy of it by exact replacements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """The product has changed, and the mistake cannot be made there any more: write it anew."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """`old` stands exactly once in `file` and becomes `new`. With these options the simulation
    found it at `seed`: what does not hold then begins with `breaks`. `guard` is a second such
    replacement, by file, of a check that would make up for the mistake.
    """

    name: str
    file: str
    old: str
    new: str
    options: str
    seed: int
    breaks: str
    guard: tuple[str, str, str] | None = None

    def replacements(self) -> list[tuple[str, str, str]]:
        """Return file, old text and new text of each replacement."""
        first = self.file, self.old, self.new
        return [first] if self.guard is None else [first, self.guard]

    def make(self, tree: Path) -> None:
        """Make it in this copy of the tree. Raises DoesNotApply."""
        for file, old, new in self.replacements():
            path = tree / file
            text = path.read_text()
            if text.count(old) != 1:
                raise DoesNotApply(
                    f"{self.name}: what it replaces stands {text.count(old)} times in {file}"
                )
            path.write_text(text.replace(old, new))
