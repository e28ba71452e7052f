"""Runner of several commands in one process, so that Spark, slow to start and to warm up, starts
once.

    python -m isthmus.in_turn

Each line of standard input is a JSON list, the arguments after `isthmus`; each answer is a line on
standard output, an object with exit status (`status`) and output (`out`). Errors go to standard
error. An unforeseen failure ends the process.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from isthmus.cli import app
from spark_audit.session import spark_kept


class Ended(NamedTuple):
    """Ended command: exit status and standard output."""

    status: int
    out: str


def run(words: Sequence[str]) -> Ended:
    """Run a command in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            app(list(words), prog_name="isthmus")
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            return Ended(status, out.getvalue())
    raise AssertionError("a command ends by SystemExit")


def run_all(lines: Iterable[str], answers: TextIO) -> None:
    """Run a command for each line. Raises ValueError and the commands' exceptions."""
    with spark_kept():
        for line in lines:
            print(json.dumps(run(json.loads(line))._asdict()), file=answers, flush=True)


if __name__ == "__main__":
    run_all(sys.stdin, sys.stdout)
