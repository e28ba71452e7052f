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
_LABELS = 8
"""Most labels below a line, or twice as many."""


def draw(file: Path, title: str, by_version: Mapping[str, Mapping[str, Any]]) -> None:
    """The row's chart."""
    has_table = "table" in next(iter(by_version.values()))
    figure = _lines(title, by_version) if has_table else _bars(title, by_version)
    figure.savefig(file, format="svg", metadata={"Date": None})


def _lines(title: str, by_version: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw a row of Isthmus alone: axes a column, from case to case, a line a version."""
    first = next(iter(by_version.values()))
    figure = Figure(figsize=(4.0 * len(first["charted"]), 3.6), layout="constrained")
    for axes, column in zip(
        figure.subplots(1, len(first["charted"]), squeeze=False)[0], first["charted"], strict=True
    ):
        for version, result in by_version.items():
            told = {case: row[column] for case, row in result["table"].items() if column in row}
            axes.plot(list(told), list(told.values()), marker=".", label=version)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(first["columns"][column])
        few = max(1, len(axes.get_xticks()) // _LABELS)
        axes.set_xticks(axes.get_xticks()[::few])
        axes.tick_params(axis="x", labelsize=8)
        axes.set_title(title, fontsize=9)
    axes.legend(fontsize=8)
    return figure


def _bars(title: str, by_version: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw the row's first measure: a group a case and version, a bar a way, least to most."""
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
    return figure
