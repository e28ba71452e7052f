"""x"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federation.mesh import Mesh
from federation.mesh_file.keys.document import MeshKeys
from federation.mesh_file.problems.key_errors import meant_key, said_of
from federation.mesh_file.problems.problem import (
    MeshFileError,
    Problem,
    ProblemList,
    Severity,
    Violation,
)
from federation.mesh_file.resolution import mesh_of_keys
from federation.mesh_file.rules.exchange_rules import nothing_carried
from federation.mesh_file.rules.mesh_rules import violations
from federation.mesh_file.yaml.gathering import Source, Unreadable, gathered
from federation.mesh_file.yaml.tree import (
    BadYaml,
    Location,
    Position,
    Tree,
    TreeProblem,
    parse_tree,
)


@dataclass(frozen=True, slots=True)
class Reading:
    """`mesh` is None if any problem is an error."""

    mesh: Mesh | None
    problems: tuple[Problem, ...]
    files: tuple[Path, ...] = ()
    """All that were read for it, or should have been."""
    tree: Tree | None = None
    """Where everything stands; None if there is no mesh."""
    name: str = "mesh.yaml"
    """The mesh file, as it is shown to people."""

    def problem(self, violation: Violation) -> Problem:
        """What somebody else finds wrong with it, at its place in the file."""
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
    """The mesh of that file; warnings are passed over. Raises MeshFileError."""
    reading = read_mesh(path)
    if reading.mesh is None:
        raise MeshFileError(reading.problems)
    return reading.mesh


def read_mesh(path: Path | str) -> Reading:
    """The mesh, if there is one, and every problem. Raises nothing for a bad file."""
    path = Path(path)
    try:
        data = Source(path, str(path)).read()
    except Unreadable as error:
        problem = Problem(str(path), 1, 1, f"cannot be read: {error.said}", "name the mesh file")
        return Reading(None, (problem,))
    return parse_mesh(data, str(path), path.parent)


def parse_mesh(data: bytes, file: str = "mesh.yaml", folder: Path = Path()) -> Reading:
    """The same for content at hand. What it names (included files, tables of branches, passwords,
    TLS files) is relative to `folder`.
    """
    told = ProblemList(file)
    try:
        tree, broken = parse_tree(data)
    except BadYaml as error:
        told.say(*error.problem)
        return Reading(None, told.problems())
    for problem in broken:
        told.say(*problem)
    if not isinstance(tree.value, dict):
        told.say(tree.position, "the file is no mapping of keys", "begin with `mesh: NAME`")
        return Reading(None, told.problems())

    def of_gathering(problem: TreeProblem) -> None:
        told.settle(*problem)

    source = Source(folder / Path(file).name, file)
    tree, sites_are_known = gathered(tree, source, of_gathering)
    keys = _keys(tree, told.say, is_whole=not broken, sites_are_known=sites_are_known)
    if keys is not None:
        _say_violations(nothing_carried(keys), tree, told.say)
        _say_violations(missing_files(keys, folder), tree, told.say)
    problems = told.problems()
    files = (source.path, *source.wanted)
    if keys is None or any(problem.severity is Severity.ERROR for problem in problems):
        return Reading(None, problems, files)
    return Reading(mesh_of_keys(keys, folder), problems, files, tree, file)


class _Say(Protocol):
    def __call__(
        self,
        at: Position,
        wrong: str,
        mend: str,
        severity: Severity = Severity.ERROR,
        site: str = "",
    ) -> None: ...


def _keys(tree: Tree, say: _Say, *, is_whole: bool, sites_are_known: bool) -> MeshKeys | None:
    """The keys, or None if they cannot all be read; says all that is wrong either way. If the
    tree is not whole, some that were written are missing.
    """
    try:
        keys = MeshKeys.model_validate(tree.plain())
    except ValidationError as error:
        details = error.errors(include_url=False)
    else:
        found = violations(keys, graph_is_known=is_whole, sites_are_known=sites_are_known)
        _say_violations(found, tree, say)
        return keys
    meant = {_meant(detail) for detail in details if detail["type"] == "extra_forbidden"}
    for detail in details:
        # Who wrote `nam` did not forget `name`.
        if detail["type"] != "missing" or detail["loc"] not in meant:
            say(*said_of(detail, tree, _in_tree(tree, detail["loc"])))
    _say_what_else(tree, details, say, is_whole=is_whole, sites_are_known=sites_are_known)
    return None


def _say_what_else(
    tree: Tree, details: list[ErrorDetails], say: _Say, *, is_whole: bool, sites_are_known: bool
) -> None:
    """Cut out what is wrong and look at the rest, so that one run tells all; but say nothing
    that may only follow from the cut.
    """
    cuts = [_cut(_in_tree(tree, detail["loc"])) for detail in details]
    # Of a site that cannot be read it is still known that there is one.
    sites = [cut for cut in cuts if cut[:1] == ("sites",) and len(cut) == 2]
    rest = tree.without([cut for cut in cuts if cut not in sites])
    for site in dict.fromkeys(sites):
        rest = rest.with_empty(site)
    rest = rest.with_default("mesh", "unnamed")
    try:
        keys = MeshKeys.model_validate(rest.plain())
    except ValidationError:
        return
    # What is lacking now: the cuts, and what an unknown key was meant for.
    lacking = [
        *(
            cut
            for cut, detail in zip(cuts, details, strict=True)
            if detail["type"] != "extra_forbidden" or cut == ("topology",)
        ),
        *(_meant(detail) for detail in details if detail["type"] == "extra_forbidden"),
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
    _say_violations((v for v in found if not follows(v)), rest, say)


def _meant(detail: ErrorDetails) -> Location:
    """Where an unknown key's value was probably meant to stand."""
    return (*detail["loc"][:-1], meant_key(detail["loc"]))


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
        say(at, violation.wrong, violation.mend, violation.severity, violation.site)


def missing_files(keys: MeshKeys, folder: Path) -> Iterator[Violation]:
    """A warning for each that is not here: a site's private key may rightly be on that site's
    machine only, and the mesh file on all.
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
