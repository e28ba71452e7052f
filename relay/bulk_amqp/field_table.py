"""AMQP field tables as bytes: find, cut and add entries; every other byte stays as it was.

A table, here always without the four length bytes in front, is entry after entry::

    | length, 1 | name | tag, 1 | value |

Values by tag, as RabbitMQ takes them (its binary parser, not the specification, is the rule)::

    V nothing    t b B one byte    s u two    I i f four    D five    l L d T eight
    S x F A      length, 4, and so many bytes (string, bytes, table, array)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from operator import itemgetter

from relay.bulk_amqp.errors import MalformedProperties, Misuse

_LENGTH = struct.Struct(">I")
_FIXED = {
    tag: size
    for tags, size in ((b"V", 0), (b"tbB", 1), (b"su", 2), (b"Iif", 4), (b"D", 5), (b"lLdT", 8))
    for tag in tags
}
_SIZED = frozenset(b"SxFA")
_TABLE, _ARRAY = ord("F"), ord("A")


def entries(table: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield (name, start of the entry, start of its value's tag, end) of each entry, in order.

    Entries of nested tables and arrays are stepped over. Raises MalformedProperties.
    """
    start = 0
    for tag_at, end in _values(table):
        yield table[start + 1 : tag_at], start, tag_at, end
        start = end


def value(table: bytes, name: bytes) -> bytes | None:
    """Tag and value of the first entry called ``name``, or None if there is none."""
    if name not in table:
        return None
    for entry, _, tag_at, end in entries(table):
        if entry == name:
            return table[tag_at:end]
    return None


def last_value(table: bytes, name: bytes) -> bytes | None:
    """Tag and value of the last entry called ``name``, or None if there is none."""
    if name not in table:
        return None
    found = None
    for entry, _, tag_at, end in entries(table):
        if entry == name:
            found = table[tag_at:end]
    return found


def without(table: bytes, unwanted: Callable[[bytes], bool]) -> bytes:
    """Return the table without entries of ``unwanted`` names; the same object if there is none."""
    kept: list[bytes] = []
    kept_to = 0
    for name, start, _, end in entries(table):
        if unwanted(name):
            kept.append(table[kept_to:start])
            kept_to = end
    if not kept_to:
        return table
    kept.append(table[kept_to:])
    return b"".join(kept)


def by_name(table: bytes) -> bytes:
    """Outermost entries sorted by name; entries of the same name stay in their order."""
    found = [(name, table[start:end]) for name, start, _, end in entries(table)]
    found.sort(key=itemgetter(0))
    return b"".join(entry for _, entry in found)


def check(table: bytes) -> None:
    """Raise MalformedProperties unless RabbitMQ would take the table, to any depth."""
    # Views, and no lists of values: a table of tables would be copied at each level, and a list
    # of an array's empty values takes a hundred times the array's bytes.
    to_do: list[tuple[int, memoryview]] = [(_TABLE, memoryview(table))]
    while to_do:
        kind, block = to_do.pop()
        for tag_at, end in _values(block) if kind == _TABLE else _items(block):
            if block[tag_at] in (_TABLE, _ARRAY):
                to_do.append((block[tag_at], block[tag_at + 5 : end]))


def entry(name: bytes, tagged_value: bytes) -> bytes:
    """Encode an entry; ``tagged_value`` comes from ``value()`` or a function below."""
    if len(name) > 255:
        raise Misuse(f"a header's name takes at most 255 bytes, this one {len(name)}")
    return bytes((len(name),)) + name + tagged_value


def long_string(text: bytes) -> bytes:
    return b"S" + _LENGTH.pack(len(text)) + text


def boolean(true: bool) -> bytes:
    return b"t\x01" if true else b"t\x00"


def long_integer(number: int) -> bytes:
    """Encode a signed number of 64 bits."""
    try:
        return b"l" + number.to_bytes(8, "big", signed=True)
    except OverflowError:
        raise Misuse(f"{number} does not fit into 64 bits") from None


def _values(table: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Yield (start of the tag, end) of each entry's value in a table."""
    at, end = 0, len(table)
    while at < end:
        start = at
        at += 1 + table[at]
        if at >= end:
            raise MalformedProperties("a header's name is cut short", start)
        tag_at = at
        at = _after_value(table, at)
        if at > end:
            raise MalformedProperties("a header's value is cut short", tag_at)
        yield tag_at, at


def _items(array: memoryview) -> Iterator[tuple[int, int]]:
    """Yield (start of the tag, end) of each value in an array."""
    at, end = 0, len(array)
    while at < end:
        start = at
        at = _after_value(array, at)
        if at > end:
            raise MalformedProperties("an array's value is cut short", start)
        yield start, at


def _after_value(block: bytes | memoryview, at: int) -> int:
    """Position after the value whose tag is at ``at``; may lie past the end of the block."""
    tag = block[at]
    size = _FIXED.get(tag)
    if size is not None:
        return at + 1 + size
    if tag not in _SIZED:
        raise MalformedProperties(f"no such type of value: {bytes((tag,))!r}", at)
    if at + 5 > len(block):
        raise MalformedProperties("a value's length is cut short", at)
    return at + 5 + int(_LENGTH.unpack_from(block, at + 1)[0])
