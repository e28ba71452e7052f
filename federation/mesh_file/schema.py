"""The JSON Schema of mesh files, made from the keys that the reader takes (`document`).

A schema cannot tell all that `isthmus validate` tells: which sites there are, who can be reached.
Its own words beside the standard ones: `x-type` (how a text is written), `x-unit`, `x-trades` (what
another value costs and buys), `x-without` (what leaving the key out comes to).
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from federation.mesh_file.document import MeshKeys, SiteListKeys


class _Plain(GenerateJsonSchema):
    """Without titles, which repeat the keys."""

    def field_title_should_be_set(self, schema: core_schema.CoreSchema) -> bool:
        return False


def mesh_schema() -> dict[str, Any]:
    """Of a mesh file."""
    return _schema(MeshKeys, "An Isthmus mesh file")


def site_list_schema() -> dict[str, Any]:
    """Of a file that a mesh file includes."""
    return _schema(SiteListKeys, "Sites that an Isthmus mesh file includes")


def _schema(model: type[MeshKeys] | type[SiteListKeys], title: str) -> dict[str, Any]:
    made = model.model_json_schema(schema_generator=_Plain)
    for section in made.get("$defs", {}).values():
        section.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": title,
    }
