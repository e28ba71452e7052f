"""x"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from federation.mesh_file.nearest import nearest
from federation.mesh_file.yaml.tree import BadYaml, Position, Row, Tree, TreeProblem, decoded

SITE = "site"
"""The placeholder, and the column, of a site's name."""
_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}")


class Cell(NamedTuple):
    """What a placeholder stands for, and where that is written."""

    text: str
    position: Position


def filled(tree: Tree, values: Mapping[str, Cell], of: int = 0) -> Tree:
    """The same tree with every text filled in. Keys stay as they are, and so does a placeholder
    that is not known: `unknown` tells of it.

    `of` is how many times a template is filled in; then every place in the tree also says where the
    values came from: a text of its own column's cell, anything else of the site's name.
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
            cell = next((one for one in used if one is not site), site)
            return Tree(at(tree.position, cell), _text(tree.value, values))
        return Tree(at(tree.position, site), tree.value)

    site = values[SITE]
    return made(tree)


def unknown(tree: Tree, known: Collection[str]) -> Iterator[TreeProblem]:
    """Every placeholder in there that stands for nothing."""
    if isinstance(tree.value, dict):
        for child in tree.value.values():
            yield from unknown(child, known)
    elif isinstance(tree.value, list):
        for child in tree.value:
            yield from unknown(child, known)
    elif isinstance(tree.value, str):
        for name in _PIECE.findall(tree.value):
            if name and name not in known:
                meant = nearest(name, known)
                mend = f"did you mean `{{{meant}}}`?" if meant else f"there is {_listed(known)}."
                yield TreeProblem(
                    tree.position,
                    f"`{{{name}}}` stands for nothing here",
                    f"{mend} (Braces are written {{{{ and }}}}.)",
                )


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
