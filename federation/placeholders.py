"""`{site}` and `{COLUMN}` in the texts of a template. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from federation.nearest import nearest
from federation.yaml_tree import Position, Row, Tree, TreeProblem

_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def filled(tree: Tree, values: Mapping[str, str], row: Row | None = None) -> Tree:
    """The same tree with every text filled in. Keys stay as they are, and so does a placeholder
    that is not known: `unknown` tells of it.
    """

    def at(position: Position) -> Position:
        return position if row is None else position._replace(row=row)

    if isinstance(tree.value, dict):
        children = {key: filled(child, values, row) for key, child in tree.value.items()}
        keys = {key: at(position) for key, position in tree.key_positions.items()}
        return Tree(at(tree.position), children, keys)
    if isinstance(tree.value, list):
        return Tree(at(tree.position), [filled(child, values, row) for child in tree.value])
    if isinstance(tree.value, str) and ("{" in tree.value or "}" in tree.value):
        return Tree(at(tree.position), _text(tree.value, values))
    return Tree(at(tree.position), tree.value)


def unknown(tree: Tree, known: Mapping[str, object]) -> Iterator[TreeProblem]:
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
                mend = f"did you mean `{{{meant}}}`?" if meant else f"there is {_listed(known)}"
                yield TreeProblem(
                    tree.position,
                    f"`{{{name}}}` stands for nothing here",
                    f"{mend}; write {{{{ and }}}} for braces",
                )


def _text(text: str, values: Mapping[str, str]) -> str:
    def piece(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0][0]
        return values.get(name, match[0])

    return _PIECE.sub(piece, text)


def _listed(known: Mapping[str, object]) -> str:
    return ", ".join(f"{{{name}}}" for name in known)
