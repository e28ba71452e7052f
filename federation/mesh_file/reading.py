"""Reading of a mesh file: a Mesh, or all problems, each with line and column.

Four steps, each of which goes on after errors as far as makes sense: YAML to a tree with positions,
and the sites of branches and included files into that tree (`yaml`), tree to keys (`keys`), keys to
a mesh (`rules`, `resolution`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federation.mesh import Mesh
from federation.mesh_file.gathering import Source, Unreadable, gathered
from federation.mesh_file.key_errors import likely_key, problem_of
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.problem import (
    MeshFileError,
    Problem,
    ProblemList,
    Severity,
    Violation,
)
from federation.mesh_file.resolution import mesh_of_keys
from federation.mesh_file.rules.exchange_rules import nothing_carried
from federation.mesh_file.rules.mesh_rules import violations
from federation.mesh_file.tree import (
    BadYaml,
    Location,
    Position,
    Tree,
    TreeProblem,
    parse_tree,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of reading a mesh file. `mesh` is None if any problem is an error."""

    mesh: Mesh | None
    problems: tuple[Problem, ...]
    files: tuple[Path, ...] = ()
    """Files that were read, or could not be."""
    tree: Tree | None = None
    """Tree with all positions, or None without a mesh."""
    name: str = "mesh.yaml"
    """Name of the mesh file for people."""

    def problem(self, violation: Violation) -> Problem:
        """Return a violation that a later check found, with its place in the file."""
        at = Position(1, 1)
        if self.tree is not None:
            at = self.tree.position_of(violation.location, key=violation.on_key)
        line, column, file = (at if at.row is None else at.row)[:3]
        return Problem(
            file or self.name,
            line,
            column,
            violation.wrong,
            violation.mend,
            violation.severity,
            violation.site,
        )


def load_mesh(path: Path | str) -> Mesh:
    """Return the mesh of a file, ignoring warnings. Raises MeshFileError."""
    reading = read_mesh(path)
    if reading.mesh is None:
        raise MeshFileError(reading.problems)
    return reading.mesh


def read_mesh(path: Path | str) -> Reading:
    """Return the mesh, if any, and every problem. Raises nothing for a bad file."""
    path = Path(path)
    try:
        data = Source(path, str(path)).read()
    except Unreadable as error:
        problem = Problem(str(path), 1, 1, f"cannot be read: {error.reason}", "name the mesh file")
        return Reading(None, (problem,))
    return parse_mesh(data, str(path), path.parent)


def parse_mesh(data: bytes, file: str = "mesh.yaml", folder: Path = Path()) -> Reading:
    """Return the mesh, if any, and every problem of `data`. Names of other files (included files,
    tables of branches, passwords, TLS files) are relative to `folder`.
    """
    found = ProblemList(file)
    try:
        tree, broken = parse_tree(data)
    except BadYaml as error:
        found.add(*error.problem)
        return Reading(None, found.problems())
    for problem in broken:
        found.add(*problem)
    if not isinstance(tree.value, dict):
        found.add(tree.position, "the file is no mapping of keys", "begin with `mesh: NAME`")
        return Reading(None, found.problems())

    def of_gathering(problem: TreeProblem) -> None:
        found.settle(*problem)

    source = Source(folder / Path(file).name, file)
    tree, sites_are_known = gathered(tree, source, of_gathering)
    keys = _keys(tree, found.add, is_whole=not broken, sites_are_known=sites_are_known)
    if keys is not None:
        _add_violations(nothing_carried(keys), tree, found.add)
        _add_violations(missing_files(keys, folder), tree, found.add)
    problems = found.problems()
    files = (source.path, *source.files)
    if keys is None or any(problem.severity is Severity.ERROR for problem in problems):
        return Reading(None, problems, files)
    return Reading(mesh_of_keys(keys, folder), problems, files, tree, file)


class _Add(Protocol):
    def __call__(
        self,
        at: Position,
        wrong: str,
        mend: str,
        severity: Severity = Severity.ERROR,
        site: str = "",
    ) -> None: ...


def _keys(tree: Tree, add: _Add, *, is_whole: bool, sites_are_known: bool) -> MeshKeys | None:
    """Return the keys, or None if they cannot all be read; add all problems either way. `is_whole`
    is False if keys that were written are missing in the tree.
    """
    try:
        keys = MeshKeys.model_validate(tree.plain())
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        found = violations(keys, graph_is_known=is_whole, sites_are_known=sites_are_known)
        _add_violations(found, tree, add)
        return keys
    likely = {_likely_location(detail) for detail in details if detail["type"] == "extra_forbidden"}
    for detail in details:
        # A file with `nam` does not lack `name`.
        if detail["type"] != "missing" or detail["loc"] not in likely:
            add(*problem_of(detail, tree, _in_tree(tree, detail["loc"])))
    _add_violations_of_rest(tree, details, add, is_whole=is_whole, sites_are_known=sites_are_known)
    return None


def _add_violations_of_rest(
    tree: Tree, details: list[ErrorDetails], add: _Add, *, is_whole: bool, sites_are_known: bool
) -> None:
    """Cut the mistakes out and check the rest, so that one run reports all problems, except those
    that may only follow from the cut.
    """
    cuts = [_cut(_in_tree(tree, detail["loc"])) for detail in details]
    # A site that cannot be read still exists.
    sites = [cut for cut in cuts if cut[:1] == ("sites",) and len(cut) == 2]
    rest = tree.without([cut for cut in cuts if cut not in sites])
    for site in dict.fromkeys(sites):
        rest = rest.with_empty(site)
    rest = rest.with_default("mesh", "unnamed")
    try:
        keys = MeshKeys.model_validate(rest.plain())
    except ValidationError:
        return
    # Missing now: the cuts, and the keys that unknown keys were meant for.
    lacking = [
        *(
            cut
            for cut, detail in zip(cuts, details, strict=True)
            if detail["type"] != "extra_forbidden" or cut == ("topology",)
        ),
        *(_likely_location(detail) for detail in details if detail["type"] == "extra_forbidden"),
    ]
    sites_are_known = sites_are_known and not any(
        cut == ("sites",) or cut[:1] in (("branches",), ("include",)) for cut in lacking
    )
    of_sites = {cut[2] if len(cut) > 2 else "" for cut in lacking if cut[:1] == ("sites",)}
    tags_are_known = not of_sites & {"", "tags"}
    graph_is_known = (
        is_whole
        and tags_are_known
        and not of_sites & {"parent", "hub"}
        and not any(cut[:1] in (("topology",), ("both",), ("links",)) for cut in lacking)
    )
    of_items = {(tree.find(cut[:2]).position, cut[2]) for cut in lacking if len(cut) > 2}

    def follows(violation: Violation) -> bool:
        item = rest.find(violation.location[:2]).position
        return any((item, key) in of_items for key in violation.depends_on)

    found = violations(
        keys,
        graph_is_known=graph_is_known,
        sites_are_known=sites_are_known,
        tags_are_known=tags_are_known,
    )
    _add_violations((v for v in found if not follows(v)), rest, add)


def _likely_location(detail: ErrorDetails) -> Location:
    """Return the place that an unknown key's value was probably meant for."""
    return (*detail["loc"][:-1], likely_key(detail["loc"]))


def _in_tree(tree: Tree, location: Location) -> Location:
    """Return the part of pydantic's location that the file has: `topology: ring` has no keys
    below.
    """
    found: list[str | int] = []
    for step in location:
        below = tree.child(step)
        if below is None:
            break
        found.append(step)
        tree = below
    return tuple(found)


def _cut(location: Location) -> Location:
    """Return the place to cut so that the rest is readable: a whole list of words for one wrong
    word, since the others alone would only cause further errors.
    """
    while len(location) > 2 and isinstance(location[-1], int):
        location = location[:-1]
    return location


def _add_violations(found: Iterable[Violation], tree: Tree, add: _Add) -> None:
    for violation in found:
        at = tree.position_of(violation.location, key=violation.on_key)
        add(at, violation.wrong, violation.mend, violation.severity, violation.site)


def missing_files(keys: MeshKeys, folder: Path) -> Iterator[Violation]:
    """Yield a warning for each named TLS file that does not exist here, in the only check that
    looks at the disk. A site's private key may rightly be on its machine only, and the mesh file on
    all.
    """
    for name, site in keys.sites.items():
        for section, keys_there, whose in (
            ("tls", site.tls, "nodes that connect to this broker need it"),
            ("admin", site.admin, "its node needs it, and those who ask it need `ca`"),
        ):
            if keys_there is None:
                continue
            files = (
                ("ca", keys_there.ca),
                ("certificate", keys_there.certificate),
                ("key", keys_there.private_key),
            )
            for key, path in files:
                if path is None or (folder / path).is_file():
                    continue
                yield Violation(
                    ("sites", name, section, key),
                    f"there is no file {path} here",
                    f"{whose}; the path is relative to the file that names it",
                    severity=Severity.WARNING,
                )
