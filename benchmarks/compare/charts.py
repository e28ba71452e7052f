"""A chart a row as SVG. Needs matplotlib, which only `make bench-report` installs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.compare.report import measures_of
from benchmarks.compare.row import Measure

matplotlib.rcParams["svg.hashsalt"] = "isthmus"  # the same results give the same file
_AXES = {Measure.RATE: "messages/s", Measure.MB_S: "MB/s"}
_WIDE = 0.8


def draw(file: Path, title: str, by_version: Mapping[str, Mapping[str, Any]]) -> None:
    """Bars of the row's first measure: a group a case and version, a bar a way, least to most."""
    measure = measures_of(next(iter(by_version.values())))[0]
    groups = [
        (f"{name}\non {version}", case["ways"])
        for version, result in by_version.items()
        for name, case in result["cases"].items()
    ]
    figure = Figure(figsize=(max(6.0, 1.1 * len(groups) + 2), 3.6), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(way for _, told in groups for way in told))
    width = _WIDE / len(ways)
    for nth, way in enumerate(ways):
        at = [
            number + nth * width - _WIDE / 2
            for number, (_, told) in enumerate(groups)
            if way in told
        ]
        spread = [told[way][measure.value] for _, told in groups if way in told]
        middle = [one["median"] for one in spread]
        errors = [
            [one["median"] - one["least"] for one in spread],
            [one["most"] - one["median"] for one in spread],
        ]
        axes.bar(at, middle, width, align="edge", label=way, yerr=errors, capsize=2)
    axes.set_xticks(range(len(groups)), [label for label, _ in groups], fontsize=8)
    axes.set_ylabel(_AXES.get(measure, measure.value.replace("_", " ")))
    if measure not in _AXES or len(groups) > 4:
        axes.set_yscale("log")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    figure.savefig(file, format="svg", metadata={"Date": None})
