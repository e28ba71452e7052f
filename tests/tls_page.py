"""What docs/tls.md says that is seen of each case, so that tests hold it to its word."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[1] / "docs" / "tls.md"
_HEADING = "| case | what is seen | what to do |"


def seen() -> dict[str, list[str]]:
    """By case: the pieces of the text that is shown for it, in order; FILE and ... stand between
    them.
    """
    table = _PAGE.read_text().partition(f"{_HEADING}\n|---|---|---|\n")[2].partition("\n\n")[0]
    told: dict[str, list[str]] = {}
    for row in table.splitlines():
        case, text, _ = (cell.strip() for cell in row.strip("|").split(" | "))
        quoted = re.search(r"`([^`]+)`", text)
        if quoted:
            pieces = (piece.strip() for piece in re.split(r"FILE|\.\.\.", quoted[1]))
            told[case] = [piece for piece in pieces if piece]
    return told


def is_said(case: str, said: str) -> bool:
    """Whether all of it is there, in order."""
    return re.search(".*".join(map(re.escape, seen()[case])), said) is not None
