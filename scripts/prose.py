"""Prose of the product's docstrings: `python scripts/prose.py [--list] [FOLDER ...]`.

Prints, of each package, how many docstrings begin as no sentence does, and how many of 1,000 words
are pronouns that need their noun, or verbs that have a module speak. Exit status 1 if a figure is
above its limit.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("relay", "dedup", "federation", "isthmus", "wan_proxy", "simulation", "spark_audit")
FRAGMENT = re.compile(
    r"(Of|As|What|Whether|It|Its|Those|These|That|This|The same|Who|Whose|Whoever|Where|How|When)\b"
)
PRONOUNS = re.compile(r"\b(it|that|this|those|one)\b", re.IGNORECASE)
SPEAKING = re.compile(r"\b(tells?|told|says?|said)\b", re.IGNORECASE)
MOST_FRAGMENTS = 1318
MOST_PRONOUNS = 69.6
"""Number in 1,000 words."""
MOST_SPEAKING = 7.95
"""Number in 1,000 words. All three limits are the figures of today, to be lowered with each package
that is gone through, down to 0, 45 and 2."""


class Docstring(NamedTuple):
    """A docstring of a module, class, function or constant, and where it begins."""

    file: Path
    line: int
    text: str

    @property
    def is_fragment(self) -> bool:
        """True if it begins with a word that leaves its noun to be guessed."""
        return FRAGMENT.match(self.text.strip()) is not None


def docstrings(folder: Path) -> Iterator[Docstring]:
    """Docstrings of all modules in a folder, in the order of files and lines."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield Docstring(file, node.lineno, text)
                case _:
                    pass


class Figures(NamedTuple):
    """Counts over the docstrings of one package."""

    docstrings: int
    words: int
    fragments: int
    pronouns: float
    speaking: float

    @classmethod
    def of(cls, found: list[Docstring]) -> Figures:
        """Count the docstrings; words of code in backquotes are left out."""
        text = "\n".join(re.sub(r"`[^`]*`", "", one.text) for one in found)
        words = len(re.findall(r"[A-Za-z]+", text))
        per = 1000 / max(1, words)
        return cls(
            len(found),
            words,
            sum(one.is_fragment for one in found),
            per * len(PRONOUNS.findall(text)),
            per * len(SPEAKING.findall(text)),
        )

    @property
    def is_well(self) -> bool:
        """True if no figure is above its limit."""
        return (
            self.fragments <= MOST_FRAGMENTS
            and self.pronouns <= MOST_PRONOUNS
            and self.speaking <= MOST_SPEAKING
        )


def main() -> int:
    """Print the figures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="print each docstring that is no sentence"
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(name) for name in PACKAGES])
    chosen = parser.parse_args()
    whole: list[Docstring] = []
    print(
        f"{'':12} {'docstrings':>10} {'words':>7} {'fragments':>9} {'pronouns':>8} {'speaking':>8}"
    )
    for folder in chosen.folders:
        found = list(docstrings(folder))
        whole += found
        _print(str(folder), Figures.of(found))
    figures = Figures.of(whole)
    _print("all", figures)
    if chosen.list:
        for one in whole:
            if one.is_fragment:
                print(f"{one.file}:{one.line}: {one.text.strip().splitlines()[0]}")
    return 0 if figures.is_well else 1


def _print(name: str, figures: Figures) -> None:
    print(
        f"{name:12} {figures.docstrings:10} {figures.words:7} {figures.fragments:9} "
        f"{figures.pronouns:8.1f} {figures.speaking:8.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
