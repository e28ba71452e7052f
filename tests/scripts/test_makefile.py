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
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
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
    ("target", "marks"), [("test", '"live and not long"'), ("test-long", "long")]
)
def test_another_rabbitmq_is_given_to_pytest_in_one_word_with_its_option(
    target: str, marks: str
) -> None:
    # In two words, pytest takes a folder that exists for a place of tests, and then does not
    # know the option, which the conftest.py of the real place declares.
    assert commands_of(target, "RABBITMQ=.rabbitmq/4") == [
        f'pytest --rabbitmq=".rabbitmq/4" -m {marks}'
    ]


def test_all_tests_but_the_long_ones_run_after_the_checks() -> None:
    assert commands_of("test") == [
        "ruff check",
        "ruff format --check --quiet",
        "mypy",
        'pytest -m "not long"',
    ]
