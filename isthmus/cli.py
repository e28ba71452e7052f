"""Command line `isthmus` with all of its commands, for what looks into these or runs several."""

from __future__ import annotations

from isthmus.command_line import COMMANDS, command_line

app = command_line(COMMANDS)
