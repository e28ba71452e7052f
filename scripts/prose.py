"""Prose of the product's docstrings: `python scripts/prose.py [--list] [FOLDER ...]`.

Prints, for each package, how many docstrings are fragments (begin as no sentence does) or halves
(lack their verb or noun in other ways), and how many of 1,000 words are pronouns that need their
noun, or verbs that have a module speak. Exit status 1 if a figure is above its limit.
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
HALF = re.compile(
    "(Above|After|Again|Also|And|Anything|At|Before|Behind|Below|Beside|Between|Both|But|By|Can|Did|"
    "Do|Does|Done|Everything|For|From|Has|Here|If|In|Is|May|Neither|Nobody|None|Not|Nothing|On|Once|"
    "Only|Or|Over|Past|Since|So|Somebody|Something|Their|Them|Then|There|They|Through|To|Told|Under|"
    "Until|Up|Which|While|Whom|Why|With|Within|Without)(?![-\\w])"
)
"""First words that leave a clause without its verb or noun: "With a lease.", "Until cancelled."."""
LOWER = re.compile(r"[a-z]+[ ,:;]")
"""Beginning in lower case, but for names such as `zstd's` and `rabbitmq.conf`."""
ENDS = re.compile(r"[.?!:`\")]$")
PRONOUNS = re.compile(r"\b(it|that|this|those|one)\b", re.IGNORECASE)
SPEAKING = re.compile(r"\b(tells?|told|says?|said)\b", re.IGNORECASE)
MOST_FRAGMENTS = 0
MOST_HALVES = 0
MOST_PRONOUNS = 45.0
"""Number in 1,000 words."""
MOST_SPEAKING = 2.0
"""Number in 1,000 words."""


class Docstring(NamedTuple):
    """A docstring of a module, class, function or constant, and where it begins."""

    file: Path
    line: int
    text: str

    @property
    def is_fragment(self) -> bool:
        """True if the docstring begins with a word that leaves its noun to be guessed."""
        return FRAGMENT.match(self.text.strip()) is not None

    @property
    def is_half(self) -> bool:
        """True if the docstring is no fragment but lacks a verb or noun, or its end.

        Only docstrings of one paragraph must have an end: longer ones may close with a table.
        """
        text = self.text.strip()
        if self.is_fragment:
            return False
        unended = "\n\n" not in text and ENDS.search(text) is None
        return unended or (HALF.match(text) or LOWER.match(text)) is not None


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
    halves: int
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
            sum(one.is_half for one in found),
            per * len(PRONOUNS.findall(text)),
            per * len(SPEAKING.findall(text)),
        )

    @property
    def is_well(self) -> bool:
        """True if no figure is above its limit."""
        return (
            self.fragments <= MOST_FRAGMENTS
            and self.halves <= MOST_HALVES
            and self.pronouns <= MOST_PRONOUNS
            and self.speaking <= MOST_SPEAKING
        )


def main() -> int:
    """Print the figures; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="print each fragment, and each half with a mark"
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path(name) for name in PACKAGES])
    chosen = parser.parse_args()
    whole: list[Docstring] = []
    print(
        f"{'':12} {'docstrings':>10} {'words':>7} {'fragments':>9} {'halves':>6} {'pronouns':>8} "
        f"{'speaking':>8}"
    )
    for folder in chosen.folders:
        found = list(docstrings(folder))
        whole += found
        _print(str(folder), Figures.of(found))
    figures = Figures.of(whole)
    _print("all", figures)
    if chosen.list:
        for one in whole:
            if one.is_fragment or one.is_half:
                mark = "(half) " if one.is_half else ""
                print(f"{one.file}:{one.line}: {mark}{one.text.strip().splitlines()[0]}")
    return 0 if figures.is_well else 1


def _print(name: str, figures: Figures) -> None:
    print(
        f"{name:12} {figures.docstrings:10} {figures.words:7} {figures.fragments:9} "
        f"{figures.halves:6} {figures.pronouns:8.1f} {figures.speaking:8.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
