"""What every mapping of the mesh file is: keys that are known, values that are not converted."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Any mapping of the file. Nothing is converted: a number is no text, a text no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def keys_of(section: type[Section]) -> list[str]:
    """The keys that the section takes, as written in the file."""
    return [field.alias or name for name, field in section.model_fields.items()]
