"""Commands one after the other in one process, so that Spark, which is slow to start and slow at
first, is started once: for those who audit again and again, as the demo does.

    python -m isthmus.in_turn

Each line of standard input is a command, what follows `isthmus`, as a JSON list; each is answered
by a line on standard output: an object with its exit status, `status`, and what it told, `out`.
What goes wrong it says on standard error. A command that fails unforeseen ends the process.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

from isthmus.cli import app
from spark_audit.engine.session import spark_kept


class Ended(NamedTuple):
    """A command that has ended: its exit status, and what it told on standard output."""

    status: int
    out: str


def run(words: Sequence[str]) -> Ended:
    """Run a command here."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            app(list(words), prog_name="isthmus")
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            return Ended(status, out.getvalue())
    raise AssertionError("a command ends by SystemExit")


def run_all(lines: Iterable[str], answers: TextIO) -> None:
    """A command a line, until there is none. Raises ValueError, and what a command raises."""
    with spark_kept():
        for line in lines:
            print(json.dumps(run(json.loads(line))._asdict()), file=answers, flush=True)


if __name__ == "__main__":
    run_all(sys.stdin, sys.stdout)
