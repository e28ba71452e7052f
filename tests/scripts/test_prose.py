"""Prose of docstrings: which of them is no sentence, and that there are no more than there were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def prose(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "scripts" / "prose.py"), *words]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)


def test_no_figure_is_above_its_limit() -> None:
    done = prose()
    assert done.returncode == 0, done.stdout


def test_a_docstring_that_begins_as_no_sentence_is_listed_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""Whole sentences."""\n\ndef f():\n    """Of the digest."""\n'
        '\n\nX = 1\n"""Number of things."""\n'
    )
    done = prose("--list", str(tmp_path))
    listed = [line for line in done.stdout.splitlines() if "module.py:" in line]
    assert listed == [f"{tmp_path}/module.py:4: Of the digest."]


def test_a_docstring_without_verb_noun_or_end_is_listed_as_half(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""zstd\'s level."""\n\ndef f():\n    """Until cancelled."""\n'
        '\n\ndef g():\n    """origin, incarnation, rank."""\n'
        '\n\nX = 1\n"""Number of things"""\n'
    )
    done = prose("--list", str(tmp_path))
    listed = [line.rpartition("module.py:")[2] for line in done.stdout.splitlines()]
    assert listed[-3:] == [
        "12: (half) Number of things",
        "4: (half) Until cancelled.",
        "8: (half) origin, incarnation, rank.",
    ]
