"""Templates of branches: placeholders `{site}` and `{COLUMN}`, and tables that fill them. Pure.

A table is CSV as spreadsheets write it; every cell keeps its line and column. The first line names
the columns, one of which is `site`. Cells are separated by commas; a cell in double quotes may have
commas, and two double quotes for a quote. Blank lines and lines that begin with # are skipped, and
so are blanks around a cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from federation.mesh_file.tree import BadYaml, Position, Row, Tree, TreeProblem, decoded
from federation.wording import nearest

SITE = "site"
"""Placeholder, and column, of a site's name."""
_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}")


class Cell(NamedTuple):
    """Value of a placeholder, and the place where the value is written."""

    text: str
    position: Position


def filled(tree: Tree, values: Mapping[str, Cell], of: int = 0) -> Tree:
    """Return the tree with every text filled in. Keys stay as they are, and so do unknown
    placeholders, which `unknown` reports.

    `of`: number of times a template is filled in, or 0. If positive, each place in the tree also
    has the origin of its values: the cell of a text's own column, otherwise the site's name.
    """

    def at(position: Position, cell: Cell) -> Position:
        if not of:
            return position
        line, column, file, _ = cell.position
        return position._replace(row=Row(line, column, file, of))

    def made(tree: Tree) -> Tree:
        if isinstance(tree.value, dict):
            children = {key: made(child) for key, child in tree.value.items()}
            keys = {key: at(position, site) for key, position in tree.key_positions.items()}
            return Tree(at(tree.position, site), children, keys)
        if isinstance(tree.value, list):
            return Tree(at(tree.position, site), [made(child) for child in tree.value])
        if isinstance(tree.value, str) and ("{" in tree.value or "}" in tree.value):
            used = [values[name] for name in _PIECE.findall(tree.value) if name in values]
            cell = next((cell for cell in used if cell is not site), site)
            return Tree(at(tree.position, cell), _text(tree.value, values))
        return Tree(at(tree.position, site), tree.value)

    site = values[SITE]
    return made(tree)


def unknown(tree: Tree, known: Collection[str]) -> Iterator[TreeProblem]:
    """Yield a problem for each unknown placeholder in the tree."""
    if isinstance(tree.value, dict):
        for key, child in tree.value.items():
            yield from unknown(child, (*known, *_FILLED_LATER.get(key, ())))
    elif isinstance(tree.value, list):
        for child in tree.value:
            yield from unknown(child, known)
    elif isinstance(tree.value, str):
        for name in _PIECE.findall(tree.value):
            if name and name not in known:
                likely = nearest(name, known)
                mend = f"did you mean `{{{likely}}}`?" if likely else f"there is {_listed(known)}."
                yield TreeProblem(
                    tree.position,
                    f"`{{{name}}}` stands for nothing here",
                    f"{mend} (Braces are written {{{{ and }}}}.)",
                )


_FILLED_LATER = {"admin": ("node",)}
"""Placeholders below a key that stay in the text, for whoever knows what they stand for."""


def _text(text: str, values: Mapping[str, Cell]) -> str:
    def piece(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        return values[name].text if name in values else match[0]

    return _PIECE.sub(piece, text)


def _listed(known: Collection[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in known)


_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

Report = Callable[[TreeProblem], None]


class Branch(NamedTuple):
    """A line of the table, by column: the site's name and its further values."""

    site: Cell
    values: dict[str, Cell]


def parse_table(data: bytes, file: str, report: Report) -> list[Branch]:
    """Return the sites of a table; each mistake goes to `report` with its place."""
    try:
        lines = re.split(r"\r\n|\n|\r", decoded(data))
    except BadYaml as error:
        report(error.problem._replace(position=error.problem.position._replace(file=file)))
        return []
    columns: list[str] | None = None
    branches: list[Branch] = []
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = _cells(line, Position(number, 1, file), report)
        if cells is None:
            if columns is None:
                return []
        elif columns is None:
            columns = _header(cells, report)
            if columns is None:
                return []
        else:
            branch = _branch(cells, columns, report)
            if branch is None:
                continue
            name = branch.site.text
            if name in first:
                _report(
                    report,
                    branch.site.position,
                    f"`{name}` is here twice, first in line {first[name]}",
                    "keep one of them",
                )
            else:
                first[name] = number
                branches.append(branch)
    if columns is None:
        _report(
            report,
            Position(1, 1, file),
            "the table is empty",
            "begin with a line of column names, one of which is `site`",
        )
    elif not branches and not first:
        _report(report, Position(1, 1, file), "the table names no site", "add a line for each")
    return branches


def _header(cells: list[Cell], report: Report) -> list[str] | None:
    names = [cell.text for cell in cells]
    if SITE not in names:
        likely = nearest(SITE, names)
        mend = (
            f"rename the column `{likely}`" if likely else "name the column of the sites' names so"
        )
        if len(names) == 1 and re.search(r"[;\t]", names[0]):
            mend = "separate columns with commas"
        _report(report, cells[0].position, f"there is no column `{SITE}`", mend)
        return None
    for n, cell in enumerate(cells):
        if not _COLUMN.fullmatch(cell.text):
            _report(
                report,
                cell.position,
                f"`{cell.text}` cannot name a column",
                "write letters, digits, _ and -, beginning with a letter",
            )
        elif cell.text in names[:n]:
            _report(report, cell.position, f"the column `{cell.text}` is here twice", "rename one")
    return names


def _branch(cells: list[Cell], columns: list[str], report: Report) -> Branch | None:
    if len(cells) != len(columns):
        at = cells[len(columns)].position if len(cells) > len(columns) else cells[0].position
        _report(
            report,
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
        _report(report, site.position, "this line names no site", "write its name, or take it out")
        return None
    return Branch(site, values)


def _cells(line: str, start: Position, report: Report) -> list[Cell] | None:
    cells: list[Cell] = []
    at = 0
    while True:
        begin = at + len(line[at:]) - len(line[at:].lstrip(" \t"))
        position = start._replace(column=begin + 1)
        if line[begin : begin + 1] == '"':
            match = re.compile(r'"((?:[^"]|"")*)"[ \t]*(?=,|$)').match(line, begin)
            if match is None:
                _report(
                    report,
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


def _report(report: Report, at: Position, wrong: str, mend: str) -> None:
    report(TreeProblem(at, wrong, mend))


def _count(cells: int) -> str:
    return f"{cells} cell" if cells == 1 else f"{cells} cells"
