"""Sites of a mesh from all files and tables that name them, in one tree.

They come from `sites` of the mesh file, from its `branches` (a template filled in for each name),
and from the files that it includes, which have the same three keys. The resulting tree has every
site under `sites`, each value with its original place; values are checked later. Reads files; names
of files are relative to the file with the name.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from os.path import normpath
from pathlib import Path, PurePath

from federation.mesh_file.keys.document import SiteListKeys
from federation.mesh_file.keys.site_keys import BranchesKeys
from federation.mesh_file.keys.values import keys_of
from federation.mesh_file.templates import (
    SITE,
    Branch,
    Cell,
    Report,
    filled,
    parse_table,
    unknown,
)
from federation.mesh_file.tree import (
    MAX_BYTES,
    BadYaml,
    Position,
    Tree,
    TreeProblem,
    parse_tree,
)
from federation.wording import nearest


class Unreadable(Exception):
    """A file that cannot be read; `reason` is the system's."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the mesh: the mesh file itself, an included file or a table. `label` is its name in
    messages.
    """

    path: Path
    label: str
    files: list[Path] = field(default_factory=list, repr=False, compare=False)
    """Files that were to be read, in order; shared with all sources found beside this one."""

    def beside(self, name: str) -> Source:
        """Return another file, named relative to this file."""
        label = normpath(Path(self.label).parent / name)
        return Source(self.path.parent / name, label, self.files)

    def read(self) -> bytes:
        """Return the content, at most one byte more than the limit: a huge file is refused, not
        read. Raises Unreadable.
        """
        self.files.append(self.path)
        try:
            with self.path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise Unreadable(reason.lower()) from error


MAX_FILES = 200
MAX_MADE_VALUES = 500_000
"""Limit of the values made by templates: more is a bomb."""

_LIST_KEYS = tuple(keys_of(SiteListKeys))


def gathered(tree: Tree, source: Source, report: Report) -> tuple[Tree, bool]:
    """Return the mesh file's tree with all its sites, and True if no site is missing. Problems of
    the gathering itself go to `report`.
    """
    if not isinstance(tree.value, dict):
        return tree, True
    gathering = _Gathering(source, report)
    return gathering.whole(tree, tree.value), gathering.is_complete


class _Gathering:
    def __init__(self, source: Source, report: Report) -> None:
        self._report = report
        self._main = source
        self.is_complete = True
        self._sites: dict[str, Tree] = {}
        self._named_at: dict[str, Position] = {}
        self._branches: list[Tree] = []
        self._includes: list[Tree] = []
        self._made = 0
        self._seen: dict[Path, str] = {source.path.resolve(): source.label}

    def whole(self, tree: Tree, keys: dict[str, Tree]) -> Tree:
        self._take(tree, self._main, (self._main.path.resolve(),))
        children, places = dict(keys), dict(tree.key_positions)
        sites = keys.get("sites")
        if self._sites and (sites is None or isinstance(sites.value, dict) or not sites.value):
            at = sites.position if sites is not None else tree.position
            children["sites"] = Tree(at, self._sites, self._named_at)
        for key, items in (("branches", self._branches), ("include", self._includes)):
            if items:
                at = keys[key].position if key in keys else tree.position
                children[key] = Tree(at, items)
        return Tree(tree.position, children, places)

    def _take(self, tree: Tree, source: Source, within: tuple[Path, ...]) -> None:
        """Take the sites of a file; `within`: the files that led to it."""
        assert isinstance(tree.value, dict)
        sites, branches = tree.value.get("sites"), tree.value.get("branches")
        if sites is not None and isinstance(sites.value, dict):
            for name, site in sites.value.items():
                at = sites.key_positions[name]
                for problem in unknown(site, (SITE,)):
                    self._report(problem)
                self._add(name, at, filled(site, {SITE: Cell(name, at)}), source)
        for group in _items(branches):
            self._branches.append(group)
            self._take_branches(group, source)
        for item in _items(tree.value.get("include")):
            self._includes.append(item)
            if isinstance(item.value, str):
                self._take_file(item.value, item.position, source, within)

    def _add(self, name: str, at: Position, site: Tree, source: Source) -> None:
        if name in self._sites:
            first = self._named_at[name]
            where = f"line {first.line}" + (
                f" of {first.file or self._main.label}" if first.file != at.file else ""
            )
            self._lack(at, f"`{name}` is here twice, first in {where}", "keep one of them")
            return
        self._sites[name] = _rebased(site, self._folder_of(source))
        self._named_at[name] = at

    def _folder_of(self, source: Source) -> str:
        """Return a file's folder relative to the mesh file's; empty if they are the same."""
        own, main = PurePath(source.label).parent, PurePath(self._main.label).parent
        folder = (
            own.relative_to(main) if own.is_relative_to(main) else source.path.parent.absolute()
        )
        return "" if str(folder) == "." else folder.as_posix()

    # Branches

    def _take_branches(self, group: Tree, source: Source) -> None:
        if not isinstance(group.value, dict):
            return
        template = group.value.get("template") or Tree(group.position, {})
        names, file = group.value.get("names"), group.value.get("file")
        if names is not None and file is not None:
            self._lack(
                group.key_positions["file"],
                "`names` and `file` both name the branches",
                "keep one of them; another group may have the other",
            )
            return
        if names is None and file is None:
            self.is_complete = False
            # An unknown key, such as `name`, is reported elsewhere.
            if set(group.value) <= set(keys_of(BranchesKeys)):
                self._report_at(
                    group.position,
                    "this names no branches",
                    "add names: [A, B], or file: branches.csv with a column `site`",
                )
            return
        if file is not None:
            branches = self._table(file, source)
        else:
            branches = list(_named(names))
        if not branches or not isinstance(template.value, dict | None):
            return
        for problem in unknown(template, branches[0].values):
            self._report(problem)
        self._made += len(branches) * _size(template)
        if self._made > MAX_MADE_VALUES:
            self._lack(
                group.position,
                f"the templates come to more than {MAX_MADE_VALUES} values",
                "say less in the template, or name fewer branches",
            )
            return
        for branch in branches:
            site = filled(template, branch.values, len(branches))
            self._add(branch.site.text, branch.site.position, site, source)

    def _table(self, file: Tree, source: Source) -> list[Branch]:
        if not isinstance(file.value, str) or not file.value:
            return []
        table = source.beside(file.value)
        try:
            data = table.read()
        except Unreadable as error:
            self._unreadable(file.position, table, error)
            return []
        return parse_table(data, table.label, self._of_table)

    def _of_table(self, problem: TreeProblem) -> None:
        self.is_complete = False
        self._report(problem)

    # Included files

    def _take_file(self, name: str, at: Position, source: Source, within: tuple[Path, ...]) -> None:
        included = source.beside(name)
        path = included.path.resolve()
        if path in within:
            self._lack(at, f"`{name}` leads back to itself", "take one of the includes out")
            return
        if path in self._seen:
            self._report_at(at, f"`{name}` is included twice", "keep one of them")
            return
        if len(self._seen) > MAX_FILES:
            self._lack(at, f"more than {MAX_FILES} files", "put several into one")
            return
        self._seen[path] = included.label
        try:
            tree, problems = parse_tree(included.read(), included.label)
        except Unreadable as error:
            self._unreadable(at, included, error)
            return
        except BadYaml as error:
            self._lack(*error.problem)
            return
        for problem in problems:
            self._lack(*problem)
        if self._is_site_list(tree):
            self._take(tree, included, (*within, path))

    def _is_site_list(self, tree: Tree) -> bool:
        if not isinstance(tree.value, dict):
            self._lack(
                tree.position, "an included file is a mapping", "begin with sites: or branches:"
            )
            return False
        for key, at in tree.key_positions.items():
            if key not in _LIST_KEYS:
                likely = nearest(key, _LIST_KEYS)
                mend = f"did you mean `{likely}`?" if likely else "put it into the mesh file"
                self._report_at(
                    at, f"`{key}` does not belong here: an included file names sites only", mend
                )
        sites = tree.value.get("sites")
        if sites is not None and not isinstance(sites.value, dict | None):
            self._lack(
                sites.position,
                "`sites` must be a mapping",
                "write it as {KEY: VALUE}, or one `KEY: VALUE` a line",
            )
        return True

    def _unreadable(self, at: Position, source: Source, error: Unreadable) -> None:
        self._lack(
            at,
            f"{source.label} cannot be read: {error.reason}",
            "the path is relative to the file that names it",
        )

    def _lack(self, at: Position, wrong: str, mend: str) -> None:
        """Report a problem that leaves sites out."""
        self.is_complete = False
        self._report_at(at, wrong, mend)

    def _report_at(self, at: Position, wrong: str, mend: str) -> None:
        self._report(TreeProblem(at, wrong, mend))


def _items(tree: Tree | None) -> list[Tree]:
    """Return the items of a list, or a single value as one item."""
    if tree is None or tree.value is None:
        return []
    return tree.value if isinstance(tree.value, list) else [tree]


def _named(names: Tree | None) -> Iterator[Branch]:
    for item in _items(names):
        if isinstance(item.value, str):
            cell = Cell(item.value, item.position)
            yield Branch(cell, {SITE: cell})


def _size(tree: Tree) -> int:
    if isinstance(tree.value, dict):
        return 1 + sum(_size(child) for child in tree.value.values())
    if isinstance(tree.value, list):
        return 1 + sum(map(_size, tree.value))
    return 1


def _rebased(site: Tree, folder: str) -> Tree:
    """Return the site of an included file with its paths relative to the mesh file."""
    if not folder or not isinstance(site.value, dict):
        return site
    children = dict(site.value)
    tls = children.get("tls")
    for key in ("password", "link_password"):
        password = children.get(key)
        if password is not None and isinstance(password.value, str):
            scheme, colon, path = password.value.partition(":")
            if scheme == "file" and path:
                children[key] = Tree(
                    password.position, f"file{colon}{posixpath.join(folder, path)}"
                )
    if tls is not None and isinstance(tls.value, dict):
        files = {
            key: Tree(file.position, posixpath.join(folder, file.value))
            if isinstance(file.value, str) and file.value
            else file
            for key, file in tls.value.items()
        }
        children["tls"] = Tree(tls.position, files, tls.key_positions)
    return Tree(site.position, children, site.key_positions)
