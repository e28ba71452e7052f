"""A Mesh as JSON and back: how revisions are kept. Passwords in clear are left out.

Keys are the names of the fields of `mesh`'s values. What a document of an earlier version lacks
gets its default; what it has besides is passed over.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from federation.mesh import Mesh

_REFERENCES = ("env:", "file:")


class BadMeshJson(ValueError):
    """No mesh can be made of this."""


def mesh_as_json(mesh: Mesh) -> dict[str, Any]:
    """All of it, fit for `json.dumps`."""
    said = asdict(mesh)
    for site in said["sites"].values():
        broker = site["broker"]
        if broker is not None and not broker["password"].startswith(_REFERENCES):
            broker["password"] = ""
    return said


def mesh_from_json(said: object) -> Mesh:
    """The mesh of such a document. Raises BadMeshJson."""
    made = _value(Mesh, said)
    assert isinstance(made, Mesh)
    return made


def _value(kind: Any, said: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if said is None and type(None) in arguments:
            return None
        return _value(next(one for one in arguments if one is not type(None)), said)
    if origin is tuple:
        if not isinstance(said, list | tuple):
            raise BadMeshJson(f"{said!r} is no list")
        return tuple(_value(arguments[0], one) for one in said)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(said, dict):
            raise BadMeshJson(f"{said!r} is no mapping")
        return {key: _value(arguments[1], one) for key, one in said.items()}
    if is_dataclass(kind):
        return _section(kind, said)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(said)
        except ValueError as error:
            raise BadMeshJson(str(error)) from error
    if kind is float and isinstance(said, int):
        return float(said)
    if not isinstance(said, kind):
        raise BadMeshJson(f"{said!r} is no {kind.__name__}")
    return said


def _section(kind: Any, said: Any) -> Any:
    if not isinstance(said, dict):
        raise BadMeshJson(f"{said!r} is no mapping")
    hints = get_type_hints(kind)
    found = {}
    for one in fields(kind):
        if one.name in said:
            found[one.name] = _value(hints[one.name], said[one.name])
        elif one.default is MISSING and one.default_factory is MISSING:
            raise BadMeshJson(f"a {kind.__name__} without {one.name!r}")
    return kind(**found)
