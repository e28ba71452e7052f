"""A message's AMQP properties as bytes, by their names."""

from __future__ import annotations

from relay.bulk_amqp import content_header
from relay.bulk_amqp.content_header import NONE_PRESENT, rewrite

NAMES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
NUMBERS = ("delivery_mode", "priority", "timestamp")
_BITS: dict[str, int] = {name: getattr(content_header, name.upper()) for name in NAMES}


def properties(headers: bytes = b"", **values: bytes | int) -> bytes:
    """These and no others; `headers` are the entries of the table."""
    return rewrite(NONE_PRESENT, {_BITS[name]: value for name, value in values.items()}, headers)
