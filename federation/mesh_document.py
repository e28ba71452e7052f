"""The mesh file's keys: their types, defaults and meaning. What is written, not what follows.

One value at a time is checked here; what several say together is for mesh_rules, and what they
come to for mesh_file. The text of `description` is the operator's documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from federation.broker_uri import (
    BadUri,
    parse_amqp,
    parse_host_port,
    parse_management,
    parse_stream,
)
from federation.durations import BadDuration, parse_duration

DEFAULT_OUTAGE_WINDOW_S = 72 * 3600.0
MESH_ERROR = "mesh"
"""The pydantic error type of our own checks; its context has `wrong` and `mend`."""


def refuse(wrong: str, mend: str) -> PydanticCustomError:
    """What a check of one value raises."""
    return PydanticCustomError(MESH_ERROR, "{wrong}; {mend}", {"wrong": wrong, "mend": mend})


def _duration(value: object) -> float:
    try:
        return parse_duration(value)
    except BadDuration as error:
        raise refuse(error.wrong, error.mend) from None


def _checked_by(parse: Callable[[str], object]) -> BeforeValidator:
    """The text itself, if `parse` takes it."""

    def check(value: object) -> object:
        if isinstance(value, str):
            try:
                parse(value)
            except BadUri as error:
                raise refuse(error.wrong, error.mend) from None
        return value

    return BeforeValidator(check)


def _identity(value: object) -> object:
    kinds = ("uuid", "message_id", "content", "none")
    if isinstance(value, str):
        if value.startswith("header:") and value.removeprefix("header:").strip():
            return value
        if value in kinds:
            return value
    shown = f"`{value}`" if isinstance(value, str | int | float) else "this"
    raise refuse(
        f"{shown} is no kind of identity", f"write one of {', '.join(kinds)} or header:NAME"
    )


def _empty_if_nothing(value: object) -> object:
    return {} if value is None else value


def _none_if_nothing(value: object) -> object:
    return [] if value is None else value


def _topology(value: object) -> object:
    return {value: {}} if isinstance(value, str) else value


Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$"}),
]
Identity = Annotated[str, BeforeValidator(_identity)]
AmqpText = Annotated[str, _checked_by(parse_amqp)]
StreamText = Annotated[str, _checked_by(parse_stream)]
ManagementText = Annotated[str, _checked_by(parse_management)]
HostPortText = Annotated[str, _checked_by(parse_host_port)]


class Section(BaseModel):
    """Any mapping of the file. Nothing is converted: a number is no text, a text no number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RetryKeys(Section):
    max_attempts: int = Field(
        5, ge=1, le=1000, description="tries before a refused message is a dead letter"
    )
    backoff: list[Duration] = Field(
        default=[0.2, 30.0],
        min_length=2,
        max_length=2,
        description="the first wait and the longest; each wait doubles the one before",
    )


class ExchangeKeys(Section):
    name: str = Field(min_length=1, description="of the AMQP exchange, the same at every site")
    type: Literal["topic", "direct", "fanout", "headers"] = "topic"
    keys: list[str] | None = Field(
        None, description="binding keys of what leaves a site; all, if left out"
    )
    origins: list[str] | None = Field(
        None, alias="from", min_length=1, description="sites whose messages leave; all, if left out"
    )
    destinations: list[str] | None = Field(
        None, alias="to", min_length=1, description="sites that get them; all, if left out"
    )
    mode: Literal["transparent", "split"] = "transparent"
    identity: Identity = Field("uuid", description="what makes two messages the same")
    scope: Literal["mesh", "origin"] = "mesh"
    order: Literal["strict", "best_effort"] = "strict"
    retry: RetryKeys = Field(default_factory=lambda: RetryKeys.model_validate({}))


class LinkKeys(Section):
    sender: str = Field(alias="from")
    receiver: str = Field(alias="to")
    both: bool | None = Field(None, description="the way back too")
    dial: str | None = Field(
        None,
        description="whose broker both ends connect to: `from`, `to` or any site; "
        "the receiver's, for each way, if left out",
    )
    via: HostPortText | None = Field(
        None, description="host:port to dial instead of that broker's own address"
    )


class SiteKeys(Section):
    cluster_id: str | None = Field(None, description="the site's name, if left out")
    broker: AmqpText | None = Field(
        None, description="amqp[s]://USER@HOST/VHOST; none: `isthmus up` runs a private one"
    )
    stream: StreamText | None = Field(
        None, description="rabbitmq-stream[+tls]://HOST:PORT; the broker's host, if left out"
    )
    password: str | None = Field(None, description="env:NAME or file:PATH")
    management: ManagementText | None = Field(
        None, description="http[s]://HOST:PORT, for users and policies"
    )


class RingKeys(Section):
    both: bool | None = Field(None, description="both ways round; one way, if left out")


class NoKeys(Section):
    pass


class TopologyKeys(Section):
    """One of them; `topology: ring` is short for `topology: {ring: {}}`."""

    ring: RingKeys | None = None
    complete: NoKeys | None = None
    custom: NoKeys | None = None

    def kinds(self) -> list[str]:
        return [kind for kind in TOPOLOGIES if getattr(self, kind) is not None]


TOPOLOGIES = tuple(TopologyKeys.model_fields)


class MeshKeys(Section):
    mesh: str = Field(description="name of the mesh, part of every name on the brokers")
    outage_window: Duration = Field(
        DEFAULT_OUTAGE_WINDOW_S,
        description="the longest outage to recover from without help: disk at every site",
    )
    topology: Annotated[TopologyKeys, BeforeValidator(_topology)] | None = None
    both: bool | None = Field(None, description="ring and custom: links go both ways")
    links: Annotated[list[LinkKeys], BeforeValidator(_none_if_nothing)] = Field(
        default=[], description="custom: the links; otherwise what is special about some"
    )
    exchanges: Annotated[list[ExchangeKeys], BeforeValidator(_none_if_nothing)] = Field(default=[])
    sites: dict[str, Annotated[SiteKeys, BeforeValidator(_empty_if_nothing)]] = Field(min_length=1)


def section_at(location: tuple[str | int, ...]) -> type[Section] | None:
    """The section whose keys stand at that place of the file, if any do."""
    found: Any = MeshKeys
    for step in location:
        found = _below(found, step)
    return _section_of(found)


def keys_of(section: type[Section]) -> list[str]:
    """The keys that the section takes, as written in the file."""
    return [field.alias or name for name, field in section.model_fields.items()]


def _below(annotation: Any, step: str | int) -> Any:
    section = _section_of(annotation)
    if section is not None:
        for name, field in section.model_fields.items():
            if step in (name, field.alias):
                return field.annotation
        return None
    for argument in getattr(annotation, "__args__", ()):
        origin = getattr(annotation, "__origin__", None)
        if origin in (list, dict):
            return annotation.__args__[-1]
        found = _below(argument, step)
        if found is not None:
            return found
    return None


def _section_of(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if getattr(annotation, "__origin__", None) in (list, dict):
        return None
    for argument in getattr(annotation, "__args__", ()):
        found = _section_of(argument)
        if found is not None:
            return found
    return None
