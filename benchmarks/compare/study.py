"""A row of Isthmus alone: a table of its own, for each of some amounts, and what is to be reached.

There is nobody to compare with, so nothing is run in turn: what may be compared is in one table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare.machine import described
from benchmarks.compare.row import judged
from isthmus.brokers.installation import RabbitMQInstallation

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a study. Files left in `folder` go with it."""

    installation: RabbitMQInstallation
    folder: Path
    amounts: tuple[int, ...]
    say: Say


@dataclass(slots=True)
class Findings:
    """`table`: figures by case and column. `reached`: by what a bar is about."""

    table: dict[str, dict[str, float]] = field(default_factory=dict)
    reached: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudyBar:
    """Bar of a study, on all brokers; either `at_least` or at most."""

    what: str
    wanted: float
    at_least: bool = False

    def held(self, reached: float) -> dict[str, Any]:
        return judged(self.what, reached, self.wanted, at_least=self.at_least)


@dataclass(frozen=True, slots=True)
class Study:
    """`amounts` are of `unit`, and may be others at the command line. `columns`: headings by the
    names that the table has. `charted`: those that are drawn.
    """

    name: str
    title: str
    unit: str
    amounts: tuple[int, ...]
    measure: Callable[[Setting], Awaitable[Findings]]
    columns: Mapping[str, str]
    charted: tuple[str, ...]
    bars: tuple[StudyBar, ...]
    quick: tuple[int, ...] | None = None


async def run_study(
    study: Study,
    installation: RabbitMQInstallation,
    amounts: tuple[int, ...],
    say: Say,
    *,
    quick: bool = False,
) -> dict[str, Any]:
    """The row's document. Raises what its brokers, nodes and load raise."""
    say(f"{study.name}: {study.title}: {study.unit}: {', '.join(f'{one:,}' for one in amounts)}")
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        found = await study.measure(Setting(installation, Path(folder), amounts, say))
    return {
        "row": study.name,
        "title": study.title,
        "rabbitmq": ".".join(map(str, installation.release[:2])),
        "quick": quick,
        **described(installation),
        "amounts": list(amounts),
        "unit": study.unit,
        "columns": dict(study.columns),
        "charted": list(study.charted),
        "table": found.table,
        "bars": [
            bar.held(found.reached[bar.what]) for bar in study.bars if bar.what in found.reached
        ],
    }
