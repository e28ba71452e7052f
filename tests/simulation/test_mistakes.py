"""Tests of the simulation itself: with a mistake made in a copy of the product, it says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mistake import DoesNotApply, Mistake
from tests.simulation.mistakes import MISTAKES

TREE = Path(__file__).parents[2]
PACKAGES = ("relay", "federation", "dedup", "simulation", "isthmus", "wan_proxy", "spark_audit")
MOST_SEEDS = 20
"""From 1 on: a change of the product may move a find to another seed."""
QUICK = ("path not appended",)


def _copy(folder: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(
            TREE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def _what_breaks(tree: Path, options: str, seed: int) -> str:
    """What the tree's own `isthmus simulate` says of this world; empty if all held."""
    done = subprocess.run(
        [sys.executable, "-m", "isthmus", "simulate", *options.split(), f"--seed={seed}", "--json"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    (told,) = json.loads(done.stdout)["runs"]
    broken: str = told["broken"]
    assert done.returncode == bool(broken)
    return broken


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_can_still_be_made(mistake: Mistake, tmp_path: Path) -> None:
    files = [file for file, _, _ in mistake.replacements()]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / file, tmp_path / file)
    mistake.make(tmp_path)
    for file in files:
        compile((tmp_path / file).read_text(), file, "exec")


def test_a_mistake_that_does_not_apply_any_more_is_told(tmp_path: Path) -> None:
    gone = Mistake("gone", "module.py", "is not there\n", "", "", 1, "")
    (tmp_path / gone.file).write_text("something else\n")
    with pytest.raises(DoesNotApply, match=r"stands 0 times in module\.py"):
        gone.make(tmp_path)


def _is_found(mistake: Mistake, tmp_path: Path) -> None:
    tree = _copy(tmp_path)
    mistake.make(tree)
    others = (seed for seed in range(1, MOST_SEEDS + 1) if seed != mistake.seed)
    instead = set()
    for seed in (mistake.seed, *others):
        broken = _what_breaks(tree, mistake.options, seed)
        if broken.startswith(mistake.breaks):
            return
        instead.add(broken)
    pytest.fail(f"{mistake.name}: not found in {MOST_SEEDS} worlds, but {instead}")


@pytest.mark.parametrize(
    "mistake", [one for one in MISTAKES if one.name in QUICK], ids=lambda mistake: mistake.name
)
def test_a_mistake_is_found(mistake: Mistake, tmp_path: Path) -> None:
    _is_found(mistake, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_without_the_mistake_all_holds_there(mistake: Mistake) -> None:
    assert _what_breaks(TREE, mistake.options, mistake.seed) == ""


@pytest.mark.long
@pytest.mark.parametrize(
    "mistake", [one for one in MISTAKES if one.name not in QUICK], ids=lambda mistake: mistake.name
)
def test_a_mistake_is_found_sooner_or_later(mistake: Mistake, tmp_path: Path) -> None:
    _is_found(mistake, tmp_path)
