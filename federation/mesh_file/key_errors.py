"""pydantic's errors in the words of the mesh file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from pydantic_core import ErrorDetails

from federation.mesh_file.document import MeshKeys, section_at
from federation.mesh_file.key_hints import (
    TOPOLOGY_MEND,
    bounds_mend,
    how_to_write,
    meant_word,
    owner_of,
)
from federation.mesh_file.section import keys_of
from federation.mesh_file.values import MESH_ERROR
from federation.mesh_file.yaml_tree import Location, Position, Tree

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


class Said(NamedTuple):
    """What is wrong with a key or a value, and where."""

    at: Position
    wrong: str
    mend: str


def said_of(detail: ErrorDetails, tree: Tree, location: Location) -> Said:
    """One of pydantic's errors; `location` is as much of its own as the file has."""
    whole: Location = detail["loc"]
    if detail["type"] == "extra_forbidden" and location == whole:
        return Said(tree.position_of(location, key=True), *_unknown_key(whole))
    return Said(tree.position_of(location), *_wrong_value(detail, tree.find(location)))


def _wrong_value(detail: ErrorDetails, value: Tree) -> tuple[str, str]:
    kind, context = detail["type"], detail.get("ctx", {})
    whole: Location = detail["loc"]
    last = whole[-1] if whole else ""
    key = f"`{last}`" if last and isinstance(last, str) else "this"
    if kind == MESH_ERROR:
        return str(context["wrong"]), str(context["mend"])
    if kind == "extra_forbidden":
        return _none_of(str(last), keys_of(section_at(whole[:-1]) or MeshKeys))
    if kind == "missing" and last == "center":
        return "a hub topology that names no hub", "write topology: {hub: SITE}"
    if kind == "missing":
        return f"{key} is missing", f"add {_EXAMPLES.get(str(last), str(last))}"
    if kind == "literal_error":
        return _none_of(value.value, re.findall(r"'([^']*)'", str(context["expected"])))
    if kind in _FORMS:
        form, mend = _FORMS[kind]
        better = how_to_write(whole, value, a_list=kind == "list_type")
        if kind == "string_type" and not isinstance(value.value, list | dict) and last != "admin":
            better = ""
        return f"{key} must be {form}, not {_shown(value)}", better or mend
    if kind in _BOUNDS:
        said, bound = _BOUNDS[kind]
        return f"{key} must {said.format(context[bound])}", bounds_mend(whole)
    return f"{key}: {detail['msg'].lower()}", "mend the value"


def _unknown_key(location: Location) -> tuple[str, str]:
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    key = str(location[-1])
    meant, owner = meant_key(location), owner_of(key, known)
    if meant:
        mend = f"did you mean `{meant}`?"
    elif location[:-1] == ("topology",):
        mend = TOPOLOGY_MEND
    elif owner:
        mend = f"it is a key of {owner}"
        if "template" in known:
            mend += ": put it into `template`"
    else:
        mend = f"the keys here are {', '.join(known)}"
    return f"unknown key `{key}`", mend


def meant_key(location: Location) -> str:
    """The key that an unknown one was probably meant for, or nothing."""
    known = keys_of(section_at(location[:-1]) or MeshKeys)
    return meant_word(str(location[-1]), known)


def _none_of(value: object, known: Iterable[str]) -> tuple[str, str]:
    known = list(known)
    meant = meant_word(value, known) if isinstance(value, str) else ""
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    if isinstance(value, bool):
        shown = f"`{str(value).lower()}`"
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
