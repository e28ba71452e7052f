"""What the targets of the Makefile run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def commands_of(*words: str) -> list[str]:
    """The Python programs that make would run."""
    # Neither flags nor variables of the make that runs these tests.
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MAKE") and name not in ("WORKERS", "RABBITMQ")
    }
    done = subprocess.run(
        ["make", "--dry-run", "--directory", str(TOP), *words],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    begin = ".venv/bin/python -m "
    lines = [line for line in done.stdout.splitlines() if line.startswith(begin)]
    return [" ".join(line.removeprefix(begin).split()) for line in lines]


@pytest.mark.parametrize(
    ("target", "rest"),
    [
        (
            "test",
            "--numprocesses=3 --dist=loadfile --no-loadscope-reorder"
            ' -m "live and not any_release and not slow and not long and not scale and not spark"',
        ),
        (
            "test-slow",
            '--numprocesses=2 --dist=loadfile --no-loadscope-reorder -m "slow and not long"',
        ),
        ("test-long", '-m "long or any_release"'),
    ],
)
def test_another_rabbitmq_is_given_to_pytest_in_one_word_with_its_option(
    target: str, rest: str
) -> None:
    # In two words, pytest takes a folder that exists for a place of tests, and then does not
    # know the option, which the conftest.py of the real place declares.
    assert commands_of(target, "RABBITMQ=some/folder") == [
        f'pytest --rabbitmq="some/folder" {rest}'
    ]
    assert commands_of(target, "RABBITMQ=4.3") == [f'pytest --rabbitmq=".rabbitmq/4.3" {rest}']


def test_all_tests_but_the_slow_and_long_ones_run_after_the_checks() -> None:
    assert commands_of("test") == [
        "ruff check",
        "ruff format --check --quiet",
        "mypy",
        "pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder"
        ' -m "not slow and not long and not scale and not spark"',
    ]


def test_it_can_run_in_one_process() -> None:
    assert "--numprocesses=0" in commands_of("test", "WORKERS=0")[-1]


def test_as_many_worlds_as_are_asked_for_are_simulated_with_what_is_asked() -> None:
    assert commands_of("simulate", "SEEDS=1000", "OPTIONS=--faults kill,cut") == [
        "isthmus simulate --seeds 1..1000 --topology any --jobs 2 --shrink 60 --faults kill,cut"
    ]
