"""Properties of a message as raw bytes: read one, change one, leave every other byte as it was.

::

    | flags, 2 | the present ones of these, in this order |

    0x8000 content type   S     0x0400 correlation ID  S     0x0020 type        S
    0x4000 encoding       S     0x0200 reply to        S     0x0010 user ID     S
    0x2000 headers        T     0x0100 expiration      S     0x0008 app ID      S
    0x1000 delivery mode  1     0x0080 message ID      S     0x0004 cluster ID  S
    0x0800 priority       1     0x0040 timestamp       8     0x0003 unused, kept

    S length, 1, and so many bytes    T length, 4, and a table (field_table.py)    1, 8 a number

All functions raise MalformedProperties for bytes that are no properties, and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache

from relay.bulk_amqp import field_table
from relay.bulk_amqp.errors import MalformedProperties, Misuse

CONTENT_TYPE = 0x8000
CONTENT_ENCODING = 0x4000
HEADERS = 0x2000
DELIVERY_MODE = 0x1000
PRIORITY = 0x0800
CORRELATION_ID = 0x0400
REPLY_TO = 0x0200
EXPIRATION = 0x0100
MESSAGE_ID = 0x0080
TIMESTAMP = 0x0040
TYPE = 0x0020
USER_ID = 0x0010
APP_ID = 0x0008
CLUSTER_ID = 0x0004

MAX_CHECKED_BYTES = 1024 * 1024
"""Most bytes of properties, which are one frame, of 128 KiB by default."""

NONE_PRESENT = b"\x00\x00"
"""Properties of a message that has none."""

_SHORT, _LONG = 0, -1
_SIZES = {
    CONTENT_TYPE: _SHORT,
    CONTENT_ENCODING: _SHORT,
    HEADERS: _LONG,
    DELIVERY_MODE: 1,
    PRIORITY: 1,
    CORRELATION_ID: _SHORT,
    REPLY_TO: _SHORT,
    EXPIRATION: _SHORT,
    MESSAGE_ID: _SHORT,
    TIMESTAMP: 8,
    TYPE: _SHORT,
    USER_ID: _SHORT,
    APP_ID: _SHORT,
    CLUSTER_ID: _SHORT,
}
_FLAGS = struct.Struct(">H")
_LENGTH = struct.Struct(">I")


def properties_present(properties: bytes) -> int:
    """Flags of the present properties, to be tested with the constants above."""
    if len(properties) < 2:
        raise MalformedProperties("the flags are cut short", 0)
    return (properties[0] << 8) | properties[1]


def text(properties: bytes, which: int) -> bytes | None:
    """String property (``MESSAGE_ID``, ``EXPIRATION``...) as bytes, or None if absent."""
    span = _span(properties, which)
    return None if span is None else properties[span[0] + 1 : span[1]]


def number(properties: bytes, which: int) -> int | None:
    """``DELIVERY_MODE``, ``PRIORITY`` or ``TIMESTAMP`` (seconds), or None if absent."""
    span = _span(properties, which)
    return None if span is None else int.from_bytes(properties[span[0] : span[1]], "big")


def headers(properties: bytes) -> bytes | None:
    """Bytes of the header table, for field_table.py, or None if there is no table."""
    span = _span(properties, HEADERS)
    return None if span is None else properties[span[0] + 4 : span[1]]


def header(properties: bytes, name: bytes) -> bytes | None:
    """Tag and value of the (outermost) header ``name``, or None if absent."""
    if name not in properties:
        return None
    table = headers(properties)
    return None if table is None else field_table.value(table, name)


class Rewriter:
    """Makes the same changes to the properties of many messages: prepared once, then cheap.

    ``changes``: properties to set (a value) or to remove (None); headers go through the other
    argument. ``add_headers``: encoded entries (``field_table.entry``), added behind the present
    ones. Values that AMQP cannot carry raise Misuse.
    """

    __slots__ = ("_add_headers", "_set", "_taken_out", "_values")

    def __init__(self, changes: Mapping[int, bytes | int | None], add_headers: bytes = b"") -> None:
        self._set = HEADERS if add_headers else 0
        self._taken_out = 0
        self._values: dict[int, bytes] = {}
        self._add_headers = add_headers
        for which, value in changes.items():
            if which == HEADERS or which not in _SIZES:
                raise Misuse(f"{which:#06x} is no property that can be set here")
            if value is None:
                self._taken_out |= which
            else:
                self._set |= which
                self._values[which] = _encoded(which, value)

    def rewrite(self, properties: bytes) -> bytes:
        """Return the changed properties; every byte not named in the changes stays."""
        new_flags, steps = _plan(properties_present(properties), self._set, self._taken_out)
        parts: list[bytes] = [new_flags]
        at = copied_to = 2
        try:
            for which, size, is_there, is_kept in steps:
                start = at
                if is_there:
                    if size == _SHORT:
                        at += 1 + properties[at]
                    elif size == _LONG:
                        at += 4 + _LENGTH.unpack_from(properties, at)[0]
                    else:
                        at += size
                    if is_kept:
                        continue
                if copied_to < start:
                    parts.append(properties[copied_to:start])
                copied_to = at
                if which == HEADERS:
                    added = self._add_headers
                    parts.append(_LENGTH.pack(max(at - start - 4, 0) + len(added)))
                    parts.append(properties[start + 4 : at])
                    parts.append(added)
                elif which in self._values:
                    parts.append(self._values[which])
        except (IndexError, struct.error):
            raise MalformedProperties("a property is cut short", at) from None
        if at != len(properties):
            raise MalformedProperties("the properties do not end where their lengths say", at)
        parts.append(properties[copied_to:])
        return b"".join(parts)


def rewrite(
    properties: bytes, changes: Mapping[int, bytes | int | None], add_headers: bytes = b""
) -> bytes:
    """Change one message's properties by a ``Rewriter``."""
    return Rewriter(changes, add_headers).rewrite(properties)


QUORUM_QUEUE_HEADERS = (b"x-delivery-count", b"x-acquired-count")
"""Headers that a quorum queue adds to its deliveries: 3.10 counts every delivery, 4.0 all but the
first, and 4.3 counts twice, failed deliveries apart from all (`rabbit_fifo_client.erl`)."""


def without_headers(
    properties: bytes, prefixes: tuple[bytes, ...] = (), names: tuple[bytes, ...] = ()
) -> bytes:
    """Remove headers that begin with one of ``prefixes`` or are called one of ``names``.

    Returns the same object if there is none: a search for those bytes comes before any walk. A
    table left empty goes altogether, such as a queue made for its ``x-delivery-count``.
    """
    for sought in (*prefixes, *names):
        if sought in properties:
            break
    else:
        return properties
    span = _span(properties, HEADERS)
    if span is None:
        return properties
    start, end = span
    table = properties[start + 4 : end]
    try:
        rest = field_table.without(table, lambda name: name in names or name.startswith(prefixes))
    except MalformedProperties:
        if any(sought in table for sought in (*prefixes, *names)):
            raise
        return properties  # the search found the bytes of another property
    if rest is table:
        return properties
    if rest:
        return b"".join((properties[:start], _LENGTH.pack(len(rest)), rest, properties[end:]))
    flags = properties_present(properties) & ~HEADERS
    return b"".join((_FLAGS.pack(flags), properties[2:start], properties[end:]))


def canonical(properties: bytes) -> bytes:
    """Return a form that is equal for properties which differ only in the order of headers.

    A quorum queue that adds its ``x-delivery-count`` on a later delivery hands all headers out
    sorted by name; headers of the same name stay in their order. An empty table is as good as none.
    """
    span = _span(properties, HEADERS)
    if span is None:
        return properties
    start, end = span
    table = properties[start + 4 : end]
    if not table:
        flags = properties_present(properties) & ~HEADERS
        return b"".join((_FLAGS.pack(flags), properties[2:start], properties[end:]))
    return b"".join((properties[: start + 4], field_table.by_name(table), properties[end:]))


def check(properties: bytes) -> None:
    """Raise MalformedProperties unless RabbitMQ would take the properties, nested tables and
    all.
    """
    if len(properties) > MAX_CHECKED_BYTES:
        raise MalformedProperties(f"{len(properties)} bytes are more than a frame", 0)
    rewrite(properties, {})
    table = headers(properties)
    if table:
        field_table.check(table)


@lru_cache(maxsize=1024)
def _walk(flags: int) -> tuple[tuple[int, int], ...]:
    """Properties in ``flags`` in wire order, each with its size."""
    return tuple((which, size) for which, size in _SIZES.items() if flags & which)


def _span(properties: bytes, sought: int) -> tuple[int, int] | None:
    """Start and end of a property's bytes, its length included, or None if absent."""
    flags = properties_present(properties)
    if not flags & sought:
        return None
    at = 2
    try:
        for which, size in _walk(flags):
            start = at
            if size == _SHORT:
                at += 1 + properties[at]
            elif size == _LONG:
                at += 4 + _LENGTH.unpack_from(properties, at)[0]
            else:
                at += size
            if which == sought:
                break
    except (IndexError, struct.error):
        raise MalformedProperties("a property is cut short", at) from None
    if at > len(properties):
        raise MalformedProperties("a property is cut short", at)
    return start, at


@lru_cache(maxsize=1024)
def _plan(
    flags: int, to_set: int, to_take_out: int
) -> tuple[bytes, tuple[tuple[int, int, bool, bool], ...]]:
    """Resulting flags, and (property, size, is present, is kept) in wire order."""
    changed = to_set | to_take_out
    steps = tuple(
        (which, size, bool(flags & which), not changed & which)
        for which, size in _walk(flags | to_set)
    )
    return _FLAGS.pack((flags | to_set) & ~to_take_out), steps


def _encoded(which: int, value: bytes | int) -> bytes:
    size = _SIZES[which]
    if size == _SHORT:
        if not isinstance(value, bytes) or len(value) > 255:
            raise Misuse(f"property {which:#06x} is a string of at most 255 bytes")
        return bytes((len(value),)) + value
    if not isinstance(value, int) or not 0 <= value < 1 << 8 * size:
        raise Misuse(f"property {which:#06x} is a number of {size} bytes")
    return value.to_bytes(size, "big")
