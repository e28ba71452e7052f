"""Properties and headers of a message by name, as values of Python."""

from __future__ import annotations

from typing import Any

from pamqp.decode import field_table

from relay.bulk_amqp import content_header
from relay.bulk_amqp.content_header import headers, number, properties_present, text
from tests.journeys.application import MARK, Received
from tests.message_properties import NAMES, NUMBERS

_THE_MESHS = ("user_id", "cluster_id")


def described(message: Received) -> dict[str, Any]:
    """Present properties of a message, without those that the mesh sets; strings as bytes."""
    present = properties_present(message.properties)
    found: dict[str, Any] = {}
    for name in NAMES:
        bit = getattr(content_header, name.upper())
        if present & bit and name not in _THE_MESHS:
            get = number if name in NUMBERS else text
            found[name] = get(message.properties, bit)
    return found


def own_headers(message: Received) -> dict[str, Any]:
    """Headers without those that the mesh adds."""
    table = headers(message.properties) or b""
    _, found = field_table(len(table).to_bytes(4) + table)
    return {name: value for name, value in found.items() if not name.startswith(MARK.decode())}
