"""Man pages of `isthmus` and its commands, from what `--help` shows.

    python -m scripts.man_pages FOLDER

`make wheels` puts them into the wheel.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
from click_man.man import ManPage

from isthmus.cli import app


def pages(command: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Yield name and content of the page of a command, then of each command below."""
    if command.hidden:
        return
    page = ManPage(context.command_path)
    page.version = version("isthmus")
    # Without a day, so that equal commands have equal pages.
    page.date = " "
    page.short_help = _first_line(command)
    page.description = cleandoc(command.help or "")
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    records = (parameter.get_help_record(context) for parameter in command.params)
    page.options = [record for record in records if record is not None]
    below = getattr(command, "commands", {})
    page.commands = [(name, _first_line(one)) for name, one in below.items() if not one.hidden]
    yield context.command_path.replace(" ", "-"), str(page)
    for name, one in below.items():
        yield from pages(one, typer.Context(one, info_name=name, parent=context))


def _first_line(command: Any) -> str:
    return cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ").rstrip(".")


def main(folder: Path) -> None:
    """Write a page for each command into the folder, and leave no other there."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in folder.glob("*.1"):
        page.unlink()
    command = typer.main.get_command(app)
    for name, content in pages(command, typer.Context(command, info_name="isthmus")):
        (folder / f"{name}.1").write_text(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
