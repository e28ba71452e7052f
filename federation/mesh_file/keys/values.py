"""Sections of a mesh file, and its single values: their forms, checks and schema.

An error of a check carries the mistake and its remedy; `problems.key_errors` adds the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from federation.brokers.broker_uri import (
    BadUri,
    parse_admin,
    parse_amqp,
    parse_host_port,
    parse_management,
    parse_stream,
)
from federation.mesh import NEWEST_BATCH_FORMAT, OLDEST_BATCH_FORMAT
from federation.mesh_file.quantities import (
    BadDuration,
    BadSize,
    parse_duration,
    parse_rate,
    parse_size,
)
from federation.signing_keys import BadPublicKey, parse_public_key


class Section(BaseModel):
    """Any mapping of the file. Nothing is converted: a number is no text, a text no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def keys_of(section: type[Section]) -> list[str]:
    """Return the keys of a section, as written in the file."""
    return [field.alias or name for name, field in section.model_fields.items()]


MESH_ERROR = "mesh"
"""Type of pydantic's errors from the checks below; the context has `wrong` and `mend`."""

IDENTITIES = ("uuid", "message_id", "content", "none")


def refuse(wrong: str, mend: str) -> PydanticCustomError:
    """Return the error that a check of a value raises."""
    return PydanticCustomError(MESH_ERROR, "{wrong}; {mend}", {"wrong": wrong, "mend": mend})


def key(
    default: Any,
    description: str,
    *,
    trades: str = "",
    unit: str = "",
    without: str = "",
    schema: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Return a key of a section: pydantic's field, with its texts for the operator's page.

    `trades`: cost and benefit of a bigger, smaller or other value; `without`: effect of leaving the
    key out, if no value expresses it; `schema`: further entries of the JSON Schema. A default is
    written as in a file, and checked.
    """
    extras = {"x-unit": unit, "x-trades": trades, "x-without": without, **(schema or {})}
    return Field(
        default,
        description=description,
        json_schema_extra={name: value for name, value in extras.items() if value},
        validate_default=default is not ... and default is not None,
        **more,
    )


def empty_for_nothing(value: object) -> object:
    """Return an empty mapping for a key followed by nothing."""
    return {} if value is None else value


def none_for_nothing(value: object) -> object:
    """Return an empty list for a key followed by nothing."""
    return [] if value is None else value


def listed(value: object) -> object:
    """Return a list, of one item for a single word or mapping."""
    if value is None:
        return []
    return [value] if isinstance(value, dict | str) else value


def parsed(parse: Callable[[object], object]) -> BeforeValidator:
    """Return a validator that applies `parse`. A value parsed before (a default) is left alone."""

    def check(value: object) -> object:
        try:
            return parse(value)
        except (BadDuration, BadSize) as error:
            raise refuse(error.wrong, error.mend) from None

    return BeforeValidator(check)


def _checked_by(parse: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that leaves the text unchanged, if `parse` takes it."""

    def check(value: object) -> object:
        if isinstance(value, str):
            try:
                parse(value)
            except (BadUri, BadPublicKey) as error:
                raise refuse(error.wrong, error.mend) from None
        return value

    return BeforeValidator(check)


def _identity(value: object) -> object:
    if isinstance(value, str):
        if value.startswith("header:") and value.removeprefix("header:").strip():
            return value
        if value in IDENTITIES:
            return value
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    raise refuse(
        f"{shown} is no kind of identity", f"write one of {', '.join(IDENTITIES)} or header:NAME"
    )


def _availability(value: object) -> object:
    """Check an availability, also as text, the form of a column of a table of branches."""
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            percent = value.strip().removesuffix("%").strip()
            try:
                number = float(percent)
            except ValueError:
                raise refuse(
                    f"`{value}` is no availability",
                    "write the part of the time that it works, such as 0.99",
                ) from None
            raise refuse(f"`{value}` is in per cent", _part(number)) from None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise refuse(
            "this is no availability", "write the part of the time that it works, such as 0.99"
        )
    if 50 <= number <= 100:
        raise refuse("an availability is above 0 and at most 1", _part(number))
    if not 0 < number <= 1:
        raise refuse(
            "an availability is above 0 and at most 1",
            "write the part of the time that it works, such as 0.99",
        )
    return float(number)


def _batch_format(value: object) -> object:
    if type(value) is int and OLDEST_BATCH_FORMAT <= value <= NEWEST_BATCH_FORMAT:
        return value
    known = f"{OLDEST_BATCH_FORMAT} or {NEWEST_BATCH_FORMAT}"
    if type(value) is int and value > NEWEST_BATCH_FORMAT:
        raise refuse(
            f"this version of Isthmus writes batches of format {known}, not {value}",
            "upgrade it at every site first, or write one of these",
        )
    raise refuse("this is no format of batches", f"write {known}")


def _part(percent: float) -> str:
    return f"did you mean {percent / 100:.6g}, for {percent:g} %?"


def _address(scheme: str) -> WithJsonSchema:
    """Return the schema of an address; a template may have a placeholder in its place."""
    return WithJsonSchema({"type": "string", "pattern": rf"^({scheme}|\{{)", "x-type": "address"})


def _addresses(value: object) -> object:
    """Return a list of addresses, of one for a single text."""
    if value is not None and value == []:
        raise refuse("this list names no address", "write one, or take the key out")
    return [value] if isinstance(value, str) else value


PLAIN_NAME = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
"""Pattern of the names of meshes, sites and tags."""

Duration = Annotated[
    float,
    parsed(parse_duration),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$", "x-type": "duration"}
    ),
]
Size = Annotated[
    int,
    parsed(parse_size),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(B|[KMGT]i?B)$", "x-type": "size"}
    ),
]
Rate = Annotated[
    int,
    parsed(parse_rate),
    WithJsonSchema(
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(B|[KMGT]i?B)/s$", "x-type": "size/s"}
    ),
]
Availability = Annotated[
    float,
    BeforeValidator(_availability),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^([0-9.]+|\{[^{}]+\})$"},
            ],
            "x-type": "number",
        }
    ),
]
BatchFormat = Annotated[
    int,
    BeforeValidator(_batch_format),
    WithJsonSchema(
        {"type": "integer", "minimum": OLDEST_BATCH_FORMAT, "maximum": NEWEST_BATCH_FORMAT}
    ),
]
Identity = Annotated[
    str,
    BeforeValidator(_identity),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^({'|'.join(IDENTITIES)}|header:.+)$",
            "x-type": f"{', '.join(IDENTITIES)} or header:NAME",
        }
    ),
]
AmqpText = Annotated[str, _checked_by(parse_amqp), _address("amqps?://")]
StreamText = Annotated[str, _checked_by(parse_stream), _address(r"rabbitmq-stream(\+tls)?://")]
ManagementText = Annotated[str, _checked_by(parse_management), _address("https?://")]
AmqpTexts = Annotated[
    list[AmqpText], BeforeValidator(_addresses, json_schema_input_type=AmqpText | list[AmqpText])
]
StreamTexts = Annotated[
    list[StreamText],
    BeforeValidator(_addresses, json_schema_input_type=StreamText | list[StreamText]),
]
ManagementTexts = Annotated[
    list[ManagementText],
    BeforeValidator(_addresses, json_schema_input_type=ManagementText | list[ManagementText]),
]
AdminText = Annotated[str, _checked_by(parse_admin), _address("https?://")]
HostPortText = Annotated[
    str,
    _checked_by(parse_host_port),
    WithJsonSchema({"type": "string", "pattern": ":[0-9]+$", "x-type": "HOST:PORT"}),
]
HostPortTexts = Annotated[
    list[HostPortText],
    Field(min_length=1),
    BeforeValidator(_addresses, json_schema_input_type=HostPortText | list[HostPortText]),
]
OneOrMore = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=str | list[str]),
]
"""A word, or a list of words."""
NodeNames = Annotated[
    list[str],
    Field(min_length=1),
    BeforeValidator(
        listed,
        json_schema_input_type=str | list[Annotated[str, Field(pattern=f"^{PLAIN_NAME}$")]],
    ),
]
"""Names of nodes, or the word `any`."""
PublicKeys = Annotated[
    list[
        Annotated[
            str,
            _checked_by(parse_public_key),
            WithJsonSchema({"type": "string", "pattern": r"^([A-Za-z0-9+/]+=*|.*\{.*)$"}),
        ]
    ],
    Field(min_length=1),
    BeforeValidator(listed, json_schema_input_type=str | list[str]),
]
"""Public keys of a site, one or two; or those that the mesh revokes."""
