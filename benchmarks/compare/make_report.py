"""`python -m benchmarks.compare.make_report`: docs/performance.md and its charts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.compare.report import VERSIONS, page
from benchmarks.compare.rows import ROWS
from benchmarks.compare.studies import STUDIES

HERE = Path(__file__).resolve().parent.parent
TITLES = {name: row.title for name, row in ROWS.items()} | {
    name: study.title for name, study in STUDIES.items()
}
PAGE = HERE.parent / "docs" / "performance.md"


def committed() -> dict[str, dict[str, dict[str, Any]]]:
    """The results by row, in the rows' order, and version."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in TITLES:
        for version in VERSIONS:
            file = HERE / "results" / f"{row}-{version}.json"
            if file.exists():
                found.setdefault(row, {})[version] = json.loads(file.read_text())
    return found


def notes() -> dict[str, str]:
    return {file.stem: file.read_text() for file in sorted((HERE / "notes").glob("*.md"))}


def main() -> int:
    from benchmarks.compare.charts import draw

    results = committed()
    folder = PAGE.parent / "performance"
    folder.mkdir(exist_ok=True)
    for row, by_version in results.items():
        draw(folder / f"{row}.svg", TITLES[row], by_version)
    PAGE.write_text(page(results, notes(), charts=results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
