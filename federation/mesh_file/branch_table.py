"""Tables of branches: CSV as spreadsheets write it, with every cell's line and column. Pure.

The first line names the columns, one of which is `site`. Cells are separated by commas; one in
double quotes may have commas in it, and two double quotes for one. Blank lines and lines that begin
with # are passed over; blanks around a cell are no part of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from federation.mesh_file.nearest import nearest
from federation.mesh_file.placeholders import SITE, Cell
from federation.mesh_file.yaml_tree import BadYaml, Position, TreeProblem, decoded

_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

Say = Callable[[TreeProblem], None]


class Branch(NamedTuple):
    """A line of the table, by column: its site's name and whatever else is said of it."""

    site: Cell
    values: dict[str, Cell]


def parse_table(data: bytes, file: str, say: Say) -> list[Branch]:
    """The sites of the table; what is wrong is told, each mistake at its own place."""
    try:
        lines = re.split(r"\r\n|\n|\r", decoded(data))
    except BadYaml as error:
        say(error.problem._replace(position=error.problem.position._replace(file=file)))
        return []
    columns: list[str] | None = None
    branches: list[Branch] = []
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = _cells(line, Position(number, 1, file), say)
        if cells is None:
            if columns is None:
                return []
        elif columns is None:
            columns = _header(cells, say)
            if columns is None:
                return []
        else:
            branch = _branch(cells, columns, say)
            if branch is None:
                continue
            name = branch.site.text
            if name in first:
                _tell(
                    say,
                    branch.site.position,
                    f"`{name}` is here twice, first in line {first[name]}",
                    "keep one of them",
                )
            else:
                first[name] = number
                branches.append(branch)
    if columns is None:
        _tell(
            say,
            Position(1, 1, file),
            "the table is empty",
            "begin with a line of column names, one of which is `site`",
        )
    elif not branches and not first:
        _tell(say, Position(1, 1, file), "the table names no site", "add a line for each")
    return branches


def _header(cells: list[Cell], say: Say) -> list[str] | None:
    names = [cell.text for cell in cells]
    if SITE not in names:
        meant = nearest(SITE, names)
        mend = f"rename the column `{meant}`" if meant else "name the column of the sites' names so"
        if len(names) == 1 and re.search(r"[;\t]", names[0]):
            mend = "separate columns with commas"
        _tell(say, cells[0].position, f"there is no column `{SITE}`", mend)
        return None
    for n, cell in enumerate(cells):
        if not _COLUMN.fullmatch(cell.text):
            _tell(
                say,
                cell.position,
                f"`{cell.text}` cannot name a column",
                "write letters, digits, _ and -, beginning with a letter",
            )
        elif cell.text in names[:n]:
            _tell(say, cell.position, f"the column `{cell.text}` is here twice", "rename one")
    return names


def _branch(cells: list[Cell], columns: list[str], say: Say) -> Branch | None:
    if len(cells) != len(columns):
        at = cells[len(columns)].position if len(cells) > len(columns) else cells[0].position
        _tell(
            say,
            at,
            f"this line has {_count(len(cells))}, the first line names {len(columns)}",
            'put a cell with a comma in it in "double quotes"'
            if len(cells) > len(columns)
            else "write a comma for each column, also before an empty cell",
        )
        return None
    values = dict(zip(columns, cells, strict=True))
    site = values[SITE]
    if not site.text:
        _tell(say, site.position, "this line names no site", "write its name, or take it out")
        return None
    return Branch(site, values)


def _cells(line: str, start: Position, say: Say) -> list[Cell] | None:
    cells: list[Cell] = []
    at = 0
    while True:
        begin = at + len(line[at:]) - len(line[at:].lstrip(" \t"))
        position = start._replace(column=begin + 1)
        if line[begin : begin + 1] == '"':
            match = re.compile(r'"((?:[^"]|"")*)"[ \t]*(?=,|$)').match(line, begin)
            if match is None:
                _tell(
                    say,
                    position,
                    "a quote that is not closed in its line, or text behind it",
                    'close it before the comma; write "" for a quote inside',
                )
                return None
            cells.append(Cell(match[1].replace('""', '"'), position))
            end = match.end()
        else:
            found = line.find(",", begin)
            end = len(line) if found < 0 else found
            cells.append(Cell(line[begin:end].rstrip(), position))
        if end >= len(line):
            return cells
        at = end + 1


def _tell(say: Say, at: Position, wrong: str, mend: str) -> None:
    say(TreeProblem(at, wrong, mend))


def _count(cells: int) -> str:
    return f"{cells} cell" if cells == 1 else f"{cells} cells"
