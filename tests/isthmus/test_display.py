"""What a terminal shows of something slow, and a file does not."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from isthmus.display import status_line


def test_a_terminal_shows_what_was_told_last_as_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")  # of which not every shell has one
    out = io.StringIO()
    with status_line("looking", Console(file=out, force_terminal=True, width=80)) as say:
        say("examined 1 of 2 sites; [paris]: asking again")
    assert "examined 1 of 2 sites; [paris]: asking again" in out.getvalue()


def test_elsewhere_nothing_is_shown() -> None:
    out = io.StringIO()
    with status_line("looking", Console(file=out, width=80)) as say:
        say("examined 1 of 2 sites")
    assert out.getvalue() == ""
