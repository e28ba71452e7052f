"""`{site}` and `{COLUMN}` in the texts of a template. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from federation.mesh_file.nearest import nearest
from federation.mesh_file.yaml_tree import Position, Row, Tree, TreeProblem

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
