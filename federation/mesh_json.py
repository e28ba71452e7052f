"""A Mesh as JSON and back: the form in which revisions are kept, without passwords in clear.

Keys are the field names of `mesh`'s values. A field that an earlier version's document lacks gets
its default; unknown fields are ignored.
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
    """A document from which no mesh can be made."""


def mesh_as_json(mesh: Mesh) -> dict[str, Any]:
    """Return the whole mesh, fit for `json.dumps`."""
    document = asdict(mesh)
    for site in document["sites"].values():
        broker = site["broker"]
        if broker is not None and not broker["password"].startswith(_REFERENCES):
            broker["password"] = ""
    return document


def mesh_from_json(document: object) -> Mesh:
    """Return the mesh of a document. Raises BadMeshJson."""
    made = _value(Mesh, document)
    assert isinstance(made, Mesh)
    return made


def _value(kind: Any, document: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if document is None and type(None) in arguments:
            return None
        return _value(next(kind for kind in arguments if kind is not type(None)), document)
    if origin is tuple:
        if not isinstance(document, list | tuple):
            raise BadMeshJson(f"{document!r} is no list")
        return tuple(_value(arguments[0], item) for item in document)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(document, dict):
            raise BadMeshJson(f"{document!r} is no mapping")
        return {key: _value(arguments[1], item) for key, item in document.items()}
    if is_dataclass(kind):
        return _section(kind, document)
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(document)
        except ValueError as error:
            raise BadMeshJson(str(error)) from error
    if kind is float and isinstance(document, int):
        return float(document)
    if not isinstance(document, kind):
        raise BadMeshJson(f"{document!r} is no {kind.__name__}")
    return document


def _section(kind: Any, document: Any) -> Any:
    if not isinstance(document, dict):
        raise BadMeshJson(f"{document!r} is no mapping")
    hints = get_type_hints(kind)
    found = {}
    for field in fields(kind):
        if field.name in document:
            found[field.name] = _value(hints[field.name], document[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            raise BadMeshJson(f"a {kind.__name__} without {field.name!r}")
    return kind(**found)
