"""YAML text as a tree with positions, without knowledge of meshes.

A subset of YAML on purpose: `true`, `false`, `null`, decimal numbers and text. So a site called
`no`, a key `12:30` or a date stay text, unlike in YAML 1.1; tags, which can make objects, are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

MAX_BYTES = 2**20
MAX_DEPTH = 40
MAX_NODES = 100_000
"""Limit of the values with aliases written out: more is a bomb."""

Scalar = str | int | float | bool | None
Location = tuple[str | int, ...]
"""Keys and indices from the root to a value."""


class Row(NamedTuple):
    """Place where a branch of a template is named."""

    line: int
    column: int
    file: str
    of: int
    """Number of branches that the template is filled in for."""


class Position(NamedTuple):
    """Place in a file. Line and column count from 1."""

    line: int
    column: int
    file: str = ""
    """Name for people; empty for the mesh file itself."""
    row: Row | None = None
    """Branch that this copy of a template was made for."""


class TreeProblem(NamedTuple):
    position: Position
    wrong: str
    mend: str


class BadYaml(Exception):
    """Text of which no tree can be made."""

    def __init__(self, problem: TreeProblem) -> None:
        self.problem = problem
        super().__init__(problem.wrong)


@dataclass(frozen=True, slots=True)
class Tree:
    """A value with its position and, for a mapping, the positions of its keys."""

    position: Position
    value: Scalar | list[Tree] | dict[str, Tree]
    key_positions: dict[str, Position] = field(default_factory=dict)

    def plain(self) -> object:
        """Return the value without positions."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def child(self, step: str | int) -> Tree | None:
        if isinstance(self.value, dict) and isinstance(step, str):
            return self.value.get(step)
        if isinstance(self.value, list) and isinstance(step, int):
            return self.value[step] if step < len(self.value) else None
        return None

    def find(self, location: Location) -> Tree:
        """Return the value at a location, or its nearest parent."""
        tree = self
        for step in location:
            below = tree.child(step)
            if below is None:
                break
            tree = below
        return tree

    def position_of(self, location: Location, *, key: bool = False) -> Position:
        """Return the position of the value at a location; with `key`, of its key."""
        if key and location and isinstance(location[-1], str):
            parent = self.find(location[:-1])
            if location[-1] in parent.key_positions:
                return parent.key_positions[location[-1]]
        return self.find(location).position

    def with_default(self, key: str, value: Scalar) -> Tree:
        """Return the mapping with `key`, set to `value` if the key was missing."""
        if not isinstance(self.value, dict) or key in self.value:
            return self
        children = {**self.value, key: Tree(self.position, value)}
        return Tree(self.position, children, self.key_positions)

    def with_empty(self, location: Location) -> Tree:
        """Return the tree with an empty mapping in place of the value at a location."""
        if not location:
            return Tree(self.position, {})
        child = self.child(location[0])
        if child is None or not isinstance(self.value, dict):
            return self
        children = {**self.value, str(location[0]): child.with_empty(location[1:])}
        return Tree(self.position, children, self.key_positions)

    def without(self, locations: Collection[Location]) -> Tree:
        """Return the tree without the values at some locations. List items go too: later items move
        up.
        """
        here = {location[0] for location in locations if len(location) == 1}
        below: dict[str | int, list[Location]] = {}
        for location in locations:
            if len(location) > 1:
                below.setdefault(location[0], []).append(location[1:])
        if isinstance(self.value, dict):
            children = {
                key: child.without(below[key]) if key in below else child
                for key, child in self.value.items()
                if key not in here
            }
            return Tree(self.position, children, self.key_positions)
        if isinstance(self.value, list):
            items = [
                child.without(below[index]) if index in below else child
                for index, child in enumerate(self.value)
                if index not in here
            ]
            return Tree(self.position, items)
        return self


def parse_tree(data: bytes, file: str = "") -> tuple[Tree, list[TreeProblem]]:
    """Return the tree of a file's content, and problems that do not prevent it. All positions are
    in `file`.

    Raises BadYaml. Of a duplicate key the first value is taken.
    """
    try:
        return _parsed(data, file)
    except BadYaml as error:
        at, wrong, mend = error.problem
        raise BadYaml(TreeProblem(at._replace(file=file), wrong, mend)) from None


def _parsed(data: bytes, file: str) -> tuple[Tree, list[TreeProblem]]:
    text = decoded(data)
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except RecursionError:
        raise BadYaml(_too_deep(Position(1, 1))) from None
    except yaml.MarkedYAMLError as error:
        raise BadYaml(_broken(error, text)) from None
    except yaml.reader.ReaderError as error:
        position = _position_at(text, error.position)
        raise BadYaml(
            TreeProblem(position, f"character #x{error.character:04x} is not allowed", "remove it")
        ) from None
    if node is None:
        raise BadYaml(TreeProblem(Position(1, 1), "the file is empty", "begin with `mesh: NAME`"))
    building = _Building(file)
    return building.tree(node, 0)[0], building.problems


class _CoreLoader(yaml.SafeLoader):
    """Loader that resolves only the values named in the module's docstring."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


_CORE = "tag:yaml.org,2002:"
_CoreLoader.add_implicit_resolver(
    f"{_CORE}bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreLoader.add_implicit_resolver(
    f"{_CORE}null", re.compile(r"(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_CoreLoader.add_implicit_resolver(
    f"{_CORE}int", re.compile(r"[-+]?[0-9]{1,18}$"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    f"{_CORE}float",
    re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{0,18}(?:[eE][-+]?[0-9]{1,3})?$"),
    list("-+0123456789"),
)


class _Building:
    """Builder of a Tree from YAML nodes, each node once however often it is aliased."""

    def __init__(self, file: str) -> None:
        self.problems: list[TreeProblem] = []
        self._file = file
        self._made: dict[int, tuple[Tree, int]] = {}
        self._open: set[int] = set()

    def tree(self, node: yaml.Node, depth: int) -> tuple[Tree, int]:
        """Return the tree and its number of nodes with every alias written out."""
        if id(node) in self._made:
            return self._made[id(node)]
        position = _at(node.start_mark, self._file)
        if id(node) in self._open:
            raise BadYaml(
                TreeProblem(position, "an anchor that contains itself", "write the value out")
            )
        if depth > MAX_DEPTH:
            raise BadYaml(_too_deep(position))
        self._open.add(id(node))
        made, size = self._built(node, position, depth)
        self._open.discard(id(node))
        if size > MAX_NODES:
            raise BadYaml(
                TreeProblem(
                    position,
                    f"with its aliases written out, this is more than {MAX_NODES} values",
                    "write out what you need",
                )
            )
        self._made[id(node)] = made, size
        return made, size

    def _built(self, node: yaml.Node, position: Position, depth: int) -> tuple[Tree, int]:
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_CORE}seq":
            items = [self.tree(child, depth + 1) for child in node.value]
            return Tree(position, [tree for tree, _ in items]), 1 + sum(n for _, n in items)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_CORE}map":
            return self._mapping(node, position, depth)
        if isinstance(node, yaml.ScalarNode):
            return Tree(position, self._scalar(node, position)), 1
        self._refuse_tag(node, position)
        return Tree(position, None), 1

    def _mapping(self, node: yaml.MappingNode, position: Position, depth: int) -> tuple[Tree, int]:
        children: dict[str, Tree] = {}
        positions: dict[str, Position] = {}
        size = 1
        for key_node, value_node in node.value:
            at = _at(key_node.start_mark, self._file)
            if not isinstance(key_node, yaml.ScalarNode):
                self._add(at, "a key must be text", "write it on one line, in quotes if need be")
                continue
            # The literal text: a site may be called `no` or `1`.
            key = key_node.value
            child, below = self.tree(value_node, depth + 1)
            size += below + 1
            if key in children:
                first = positions[key]
                self._add(
                    at,
                    f"`{key}` is here twice, first in line {first.line}",
                    "keep one of them",
                )
            elif key == "<<":
                self._add(at, "merge keys (`<<`) are not taken", "write the values out")
            else:
                children[key] = child
                positions[key] = at
        return Tree(position, children, positions), size

    def _scalar(self, node: yaml.ScalarNode, position: Position) -> Scalar:
        text: str = node.value
        match node.tag.removeprefix(_CORE):
            case "str":
                return text
            case "null" if node.style is None and text.lower() in ("", "~", "null"):
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" if re.fullmatch(r"[-+]?[0-9]{1,18}", text):
                return int(text)
            case "float" if re.fullmatch(r"[-+]?[0-9.]{1,40}(?:[eE][-+]?[0-9]{1,3})?", text):
                return float(text)
        self._refuse_tag(node, position)
        return None

    def _refuse_tag(self, node: yaml.Node, position: Position) -> None:
        self._add(position, f"the tag `{node.tag}` is not taken", "write a plain value")

    def _add(self, position: Position, wrong: str, mend: str) -> None:
        self.problems.append(TreeProblem(position, wrong, mend))


def decoded(data: bytes) -> str:
    """Return the text of a file's content without its byte order mark. Raises BadYaml."""
    if len(data) > MAX_BYTES:
        raise BadYaml(
            TreeProblem(
                Position(1, 1),
                f"the file has {len(data)} bytes, more than {MAX_BYTES}",
                "is this the file you mean? Take out what is not needed",
            )
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = data[: error.start].decode("utf-8", "replace")
        raise BadYaml(
            TreeProblem(
                _position_at(good, len(good)),
                f"byte 0x{data[error.start]:02x} is not UTF-8",
                "save the file as UTF-8",
            )
        ) from None


def _broken(error: yaml.MarkedYAMLError, text: str) -> TreeProblem:
    mark = error.problem_mark or error.context_mark
    if "could not find expected ':'" in str(error.problem) and error.context_mark is not None:
        # The parser stops at the next key; the colon is missing behind the key before.
        mark = error.context_mark
    position = _at(mark) if mark is not None else Position(1, 1)
    wrong = f"this is not YAML: {error.problem}"
    if (
        error.context
        and error.context_mark is not None
        and error.context_mark.line < position.line - 1
    ):
        wrong += f" ({error.context} that begins in line {error.context_mark.line + 1})"
    here = _line(text, position.line)
    above = _line(text, error.context_mark.line + 1) if error.context_mark is not None else here
    reason = f"{error.context} {error.problem}"
    mend = "look at the line above too: a bracket, a quote or the indentation"
    if "\\t" in reason or here.startswith("\t"):
        mend = "indent with blanks, not with tabs"
    elif re.search(r"[\[,\s]#", above):
        mend = 'an unquoted # begins a comment: write "#"'
    elif "another document" in reason:
        mend = (
            "leave one mesh in the file: take the line `---` out, with what is before or after it"
        )
    elif "alias" in reason:
        mend = "an unquoted * begins an alias: put the text in quotes"
    elif "could not find expected ':'" in reason:
        mend = "write KEY: VALUE, with a colon and a blank after it"
    elif "expected <block end>, but found '<block mapping start>'" in reason:
        mend = "indent it as its neighbours are"
    elif "mapping values are not allowed" in reason:
        mend = "indent it as its neighbours are, or put text with `: ` in quotes"
    return TreeProblem(position, wrong, mend)


def _line(text: str, number: int) -> str:
    """Return a line; past the end, the last line that is not blank."""
    lines = text.rstrip().split("\n")
    return lines[min(number, len(lines)) - 1]


def _too_deep(position: Position) -> TreeProblem:
    return TreeProblem(position, "brackets or indentation nested too deeply", "close them earlier")


def _at(mark: yaml.Mark, file: str = "") -> Position:
    return Position(mark.line + 1, mark.column + 1, file)


def _position_at(text: str, index: int) -> Position:
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
