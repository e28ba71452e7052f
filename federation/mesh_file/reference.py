"""docs/mesh-file.md: every key of a mesh file, made from the same keys as the JSON Schema. Pure.

The prose around the tables stands in mesh_reference_texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from federation.mesh_file.reference_texts import AFTER, BEFORE, SECTIONS
from federation.mesh_file.schema import mesh_schema, site_list_schema

Schema = dict[str, Any]


def mesh_reference() -> str:
    """The whole page, in Markdown."""
    schema, included = mesh_schema(), site_list_schema()
    sections = {**schema["$defs"], "MeshKeys": schema, "SiteListKeys": included}
    parts = [BEFORE.strip()]
    for name, heading, text in SECTIONS:
        parts.append("\n".join(_section(heading, text, sections[name])))
    return "\n\n".join([*parts, AFTER.strip()]) + "\n"


def sections_of_page() -> set[str]:
    """Those that the page has a heading for."""
    return {name for name, _, _ in SECTIONS}


def _section(heading: str, text: str, section: Schema) -> Iterator[str]:
    yield heading
    yield ""
    yield " ".join(section["description"].split())
    if text:
        yield ""
        yield text.strip()
    properties: dict[str, Schema] = section.get("properties", {})
    if not properties:
        return
    yield ""
    yield "| key | type | default | what it is | what it trades |"
    yield "|---|---|---|---|---|"
    required = section.get("required", [])
    for key, value in properties.items():
        cells = (
            f"`{key}`",
            _type(value) + (f", {value['x-unit']}" if "x-unit" in value else ""),
            "**needed**" if key in required else _default(value),
            value["description"],
            value.get("x-trades", ""),
        )
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(value: Schema) -> str:
    if "x-type" in value:
        return str(value["x-type"])
    if "$ref" in value:
        return _link(value["$ref"])
    if "anyOf" in value:
        kinds = [_type(one) for one in value["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return " or ".join(f"`{word}`" for word in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    match value.get("type"):
        case "array":
            return f"list of {_type(value['items'])}"
        case "object":
            inner = value.get("additionalProperties")
            return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
        case "string":
            return "text"
        case "boolean":
            return "true or false"
        case "integer":
            low, high = value.get("minimum"), value.get("maximum")
            return f"whole number, {low} to {high}" if None not in (low, high) else "whole number"
    return str(value.get("type", "anything"))


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    for section, heading, _ in SECTIONS:
        if section == name:
            words = heading.lstrip("# ")
            anchor = "".join(c for c in words.lower().replace(" ", "-") if c.isalnum() or c in "-_")
            return f"[{words}](#{anchor})"
    return "`{}`"


def _default(value: Schema) -> str:
    if "x-without" in value:
        return f"_{value['x-without']}_"
    default = value.get("default")
    if default in (None, [], {}):
        return "none"
    if isinstance(default, str):
        return f"`{default}`"
    if isinstance(default, list) and all(isinstance(one, str) for one in default):
        return f"`[{', '.join(default)}]`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{json.dumps(default)}`"
