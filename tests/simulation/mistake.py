"""A mistake of the product, made in a copy of it: an exact replacement in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class DoesNotApply(Exception):
    """The product has changed, and the mistake cannot be made there any more: write it anew."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """`old` stands exactly once in `file` and becomes `new`. With these options the simulation
    found it at `seed`: what does not hold then begins with `breaks`.
    """

    name: str
    file: str
    old: str
    new: str
    options: str
    seed: int
    breaks: str

    def make(self, tree: Path) -> None:
        """Make it in this copy of the tree. Raises DoesNotApply."""
        path = tree / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise DoesNotApply(
                f"{self.name}: what it replaces stands {text.count(self.old)} times in {self.file}"
            )
        path.write_text(text.replace(self.old, self.new))
