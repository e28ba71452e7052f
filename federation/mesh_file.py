"""A mesh file -> Mesh, or all that is wrong with it, each with line and column.

Three steps, each of which goes on after errors as far as makes sense: YAML to a tree with
positions (yaml_tree), tree to keys (mesh_document), keys to a mesh (mesh_rules, topologies).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from federation.broker_uri import HostPort, parse_amqp, parse_management, parse_stream
from federation.mesh import (
    BrokerAddress,
    Exchange,
    ExchangeMode,
    IdentityKind,
    IdentityRule,
    IdentityScope,
    Mesh,
    OrderRule,
    RetryRule,
    Site,
)
from federation.mesh_document import (
    MESH_ERROR,
    ExchangeKeys,
    MeshKeys,
    SiteKeys,
    keys_of,
    section_at,
)
from federation.mesh_rules import Violation, nearest, violations
from federation.problems import MeshFileError, Problem, Severity
from federation.topologies import declared_links, forwarding_rule
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

_EXAMPLES = {
    "mesh": "mesh: acme",
    "sites": "sites: {paris: {}, tokyo: {}, sydney: {}}",
    "name": "name: orders",
    "from": "from: paris",
    "to": "to: tokyo",
}
_FORMS = {
    "string_type": ("text", "write it in quotes if it looks like something else"),
    "bool_type": ("true or false", "write true or false"),
    "int_type": ("a whole number", "write a number without unit and quotes"),
    "list_type": ("a list", "write it as [A, B], or one line each beginning with `- `"),
    "dict_type": ("a mapping", "write it as {KEY: VALUE}, or one `KEY: VALUE` a line"),
    "model_type": ("a mapping", "write it as {KEY: VALUE}, or one `KEY: VALUE` a line"),
}
_BOUNDS = {
    "greater_than_equal": ("be at least {}", "ge"),
    "less_than_equal": ("be at most {}", "le"),
    "too_short": ("have {} or more", "min_length"),
    "too_long": ("have no more than {}", "max_length"),
    "string_too_short": ("not be empty", "min_length"),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """`mesh` is None if any problem is an error."""

    mesh: Mesh | None
    problems: tuple[Problem, ...]


class PasswordMissing(Exception):
    """A password that is not where the mesh file says. Set it there, and start again."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"no password in {where}: {reason}")


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
    return Reading(_mesh(keys, folder), problems)


def resolve_password(password: str, environ: Mapping[str, str]) -> str:
    """What `env:NAME`, `file:PATH` or a password in clear stands for. Raises PasswordMissing.

    Of a file it is the first line.
    """
    if password.startswith("env:"):
        name = password.removeprefix("env:")
        if not environ.get(name):
            raise PasswordMissing(f"the environment variable {name}", "it is not set")
        return environ[name]
    if password.startswith("file:"):
        path = Path(password.removeprefix("file:"))
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise PasswordMissing(f"the file {path}", str(error)) from error
        if not lines or not lines[0]:
            raise PasswordMissing(f"the file {path}", "its first line is empty")
        return lines[0]
    return password


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
        (*detail["loc"][:-1], _meant_key(detail["loc"]))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    for detail in details:
        # Who wrote `sits` did not forget `sites`.
        if detail["type"] != "missing" or detail["loc"] not in meant:
            _say_detail(detail, tree, _in_tree(tree, detail["loc"]), say)
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


def _say_detail(detail: ErrorDetails, tree: Tree, location: Location, say: _Say) -> None:
    """One of pydantic's errors in our words, at its place."""
    kind, context = detail["type"], detail.get("ctx", {})
    whole: Location = detail["loc"]
    at, value = tree.position_of(location), tree.find(location)
    key = f"`{whole[-1]}`" if whole and isinstance(whole[-1], str) else "this"
    if kind == MESH_ERROR:
        say(at, str(context["wrong"]), str(context["mend"]))
    elif kind == "extra_forbidden" and location == whole:
        say(tree.position_of(location, key=True), *_unknown_key(whole))
    elif kind == "extra_forbidden":
        say(at, *_none_of(str(whole[-1]), keys_of(section_at(whole[:-1]) or MeshKeys)))
    elif kind == "missing":
        last = str(whole[-1])
        say(at, f"{key} is missing", f"add {_EXAMPLES.get(last, last)}")
    elif kind == "literal_error":
        known = re.findall(r"'([^']*)'", str(context["expected"]))
        say(at, *_none_of(value.value, known))
    elif kind in _FORMS:
        form, mend = _FORMS[kind]
        say(at, f"{key} must be {form}, not {_shown(value)}", mend)
    elif kind in _BOUNDS:
        said, bound = _BOUNDS[kind]
        limit = context[bound]
        say(at, f"{key} must {said.format(limit)}", "mend it, or leave it out for the default")
    else:
        say(at, f"{key}: {detail['msg'].lower()}", "mend the value")


def _unknown_key(location: Location) -> tuple[str, str]:
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    meant = _meant_key(location)
    mend = f"did you mean `{meant}`?" if meant else f"the keys here are {', '.join(known)}"
    return f"unknown key `{location[-1]}`", mend


def _meant_key(location: Location) -> str:
    """The key that an unknown one was probably meant for, or nothing."""
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    return nearest(str(location[-1]), known) or ""


def _none_of(value: object, known: Iterable[str]) -> tuple[str, str]:
    known = list(known)
    meant = nearest(value, known) if isinstance(value, str) else None
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    mend = f"did you mean `{meant}`?" if meant else f"write one of {', '.join(known)}"
    return f"{shown} is not known here", mend


def _shown(tree: Tree) -> str:
    match tree.value:
        case None:
            return "nothing"
        case bool():
            return "true" if tree.value else "false"
        case int() | float():
            return f"the number {tree.value}"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _mesh(keys: MeshKeys, folder: Path) -> Mesh:
    """What valid keys come to."""
    sites = {name: _site(name, site, folder) for name, site in keys.sites.items()}
    mesh = Mesh(
        name=keys.mesh,
        revision="",
        outage_window_s=keys.outage_window,
        rule=forwarding_rule(keys),
        sites=sites,
        exchanges={exchange.name: _exchange(exchange) for exchange in keys.exchanges},
        links=tuple(declared_links(keys, keys.sites).values()),
        cluster_ids={site.cluster_id: name for name, site in sites.items()},
    )
    return replace(mesh, revision=_revision(mesh, keys))


def _site(name: str, keys: SiteKeys, folder: Path) -> Site:
    cluster_id = keys.cluster_id or name
    if keys.broker is None:
        return Site(name, cluster_id)
    uri = parse_amqp(keys.broker)
    if keys.stream is not None:
        stream = parse_stream(keys.stream)
    else:
        stream = HostPort(uri.host, 5551 if uri.tls else 5552, uri.tls)
    management = parse_management(keys.management) if keys.management else None
    password = keys.password or uri.password or ""
    if password.startswith("file:"):
        # Relative to the mesh file, wherever the command is run.
        password = f"file:{(folder / password.removeprefix('file:')).absolute()}"
    return Site(
        name,
        cluster_id,
        BrokerAddress(
            amqp=uri.without_password(),
            stream=stream.as_uri("rabbitmq-stream", "rabbitmq-stream+tls"),
            password=password,
            management=management.as_uri("http", "https") if management else None,
        ),
    )


def _exchange(keys: ExchangeKeys) -> Exchange:
    all_of_it: tuple[str, ...] = ("#",) if keys.type == "topic" else ()
    first, most = keys.retry.backoff
    header = keys.identity.removeprefix("header:") if keys.identity.startswith("header:") else ""
    return Exchange(
        name=keys.name,
        type=keys.type,
        keys=tuple(keys.keys) if keys.keys is not None else all_of_it,
        origins=tuple(keys.origins) if keys.origins is not None else None,
        destinations=tuple(keys.destinations) if keys.destinations is not None else None,
        mode=ExchangeMode(keys.mode),
        identity=IdentityRule(
            IdentityKind.HEADER if header else IdentityKind(keys.identity), header
        ),
        scope=IdentityScope(keys.scope),
        order=OrderRule(keys.order),
        retry=RetryRule(keys.retry.max_attempts, first, most),
    )


def _revision(mesh: Mesh, keys: MeshKeys) -> str:
    """A hash of what the file comes to: comments, the order of keys and the folder leave no trace,
    and neither does a password in clear.
    """
    said = asdict(mesh)
    del said["revision"], said["cluster_ids"]
    said["links"] = sorted(said["links"], key=lambda link: (link["sender"], link["receiver"]))
    for name, site in said["sites"].items():
        if site["broker"] is not None:
            written = keys.sites[name].password or ""
            is_reference = written.startswith(("env:", "file:"))
            site["broker"]["password"] = written if is_reference else ""
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(f"isthmus mesh 1\n{canonical}".encode()).hexdigest()[:12]
