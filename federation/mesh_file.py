"""A mesh file -> Mesh, or all that is wrong with it, each with line and column.

Three steps, each of which goes on after errors as far as makes sense: YAML to a tree with
positions (yaml_tree), tree to keys (mesh_document), keys to a mesh (mesh_rules, resolution).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federation.key_errors import meant_key, said_of
from federation.mesh import Mesh
from federation.mesh_document import MeshKeys
from federation.mesh_rules import violations
from federation.passwords import PasswordMissing, resolve_password
from federation.problems import MeshFileError, Problem, Severity
from federation.resolution import mesh_of_keys
from federation.violation import Violation
from federation.yaml_tree import MAX_BYTES, BadYaml, Location, Position, Tree, parse_tree

__all__ = [
    "MeshFileError",
    "PasswordMissing",
    "Problem",
    "Reading",
    "Severity",
    "load_mesh",
    "parse_mesh",
    "read_mesh",
    "resolve_password",
]


@dataclass(frozen=True, slots=True)
class Reading:
    """`mesh` is None if any problem is an error."""

    mesh: Mesh | None
    problems: tuple[Problem, ...]


def load_mesh(path: Path | str) -> Mesh:
    """The mesh of that file; warnings are passed over. Raises MeshFileError."""
    reading = read_mesh(path)
    if reading.mesh is None:
        raise MeshFileError(reading.problems)
    return reading.mesh


def read_mesh(path: Path | str) -> Reading:
    """The mesh, if there is one, and every problem. Raises nothing for a bad file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            # One byte more than is taken, so that a huge file is refused and not read.
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        return Reading(
            None, (Problem(str(path), 1, 1, f"cannot be read: {said}", "name the mesh file"),)
        )
    return parse_mesh(data, str(path), path.parent)


def parse_mesh(data: bytes, file: str = "mesh.yaml", folder: Path = Path()) -> Reading:
    """The same for content at hand; `file:` passwords are relative to `folder`."""
    try:
        tree, broken = parse_tree(data)
    except BadYaml as error:
        at, wrong, mend = error.problem
        return Reading(None, (Problem(file, at.line, at.column, wrong, mend),))
    found = {(at, wrong): Problem(file, *at, wrong, mend) for at, wrong, mend in broken}

    def say(at: Position, wrong: str, mend: str, severity: Severity = Severity.ERROR) -> None:
        found.setdefault((at, wrong), Problem(file, at.line, at.column, wrong, mend, severity))

    keys = None
    if isinstance(tree.value, dict):
        keys = _keys(tree, say, is_whole=not broken)
    else:
        say(tree.position, "the file is no mapping of keys", "begin with `mesh: NAME`")
    problems = tuple(sorted(found.values(), key=lambda p: (p.line, p.column)))
    if keys is None or any(problem.severity is Severity.ERROR for problem in problems):
        return Reading(None, problems)
    return Reading(mesh_of_keys(keys, folder), problems)


class _Say(Protocol):
    def __call__(
        self, at: Position, wrong: str, mend: str, severity: Severity = Severity.ERROR
    ) -> None: ...


def _keys(tree: Tree, say: _Say, *, is_whole: bool) -> MeshKeys | None:
    """The keys, or None if they cannot all be read; says all that is wrong either way. If the
    tree is not whole, some that were written are missing.
    """
    try:
        keys = MeshKeys.model_validate(tree.plain())
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        _say_violations(violations(keys, graph_is_known=is_whole), tree, say)
        return keys
    meant = {
        (*detail["loc"][:-1], meant_key(detail["loc"]))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    for detail in details:
        # Who wrote `sits` did not forget `sites`.
        if detail["type"] != "missing" or detail["loc"] not in meant:
            say(*said_of(detail, tree, _in_tree(tree, detail["loc"])))
    _say_what_else(tree, details, say, is_whole=is_whole)
    return None


def _say_what_else(tree: Tree, details: list[ErrorDetails], say: _Say, *, is_whole: bool) -> None:
    """Cut out what is wrong and look at the rest, so that one run tells all; but say nothing
    that may only follow from the cut.
    """
    cuts = [_cut(_in_tree(tree, detail["loc"])) for detail in details]
    rest = tree.without(cuts).with_default("mesh", "unnamed")
    try:
        keys = MeshKeys.model_validate(rest.plain())
    except ValidationError:
        return
    harmful = [
        cut
        for cut, detail in zip(cuts, details, strict=True)
        if detail["type"] != "extra_forbidden" or cut == ("topology",)
    ]
    graph_is_known = is_whole and not any(
        cut[:1] in (("topology",), ("both",), ("links",))
        or (cut[:1] == ("sites",) and len(cut) == 2)
        for cut in harmful
    )
    lacking = {(tree.find(cut[:2]).position, cut[2]) for cut in harmful if len(cut) > 2}

    def follows(violation: Violation) -> bool:
        item = rest.find(violation.location[:2]).position
        return any((item, key) in lacking for key in violation.depends_on)

    found = violations(keys, graph_is_known=graph_is_known)
    _say_violations((v for v in found if not follows(v)), rest, say)


def _in_tree(tree: Tree, location: Location) -> Location:
    """As much of pydantic's location as the file has: `topology: ring` has no keys below."""
    found: list[str | int] = []
    for step in location:
        below = tree.child(step)
        if below is None:
            break
        found.append(step)
        tree = below
    return tuple(found)


def _cut(location: Location) -> Location:
    """What to leave out for the rest to be readable. Of a list of words with a wrong one, all:
    the others alone would only cause further errors.
    """
    while len(location) > 2 and isinstance(location[-1], int):
        location = location[:-1]
    return location


def _say_violations(found: Iterable[Violation], tree: Tree, say: _Say) -> None:
    for violation in found:
        at = tree.position_of(violation.location, key=violation.on_key)
        say(at, violation.wrong, violation.mend, violation.severity)
