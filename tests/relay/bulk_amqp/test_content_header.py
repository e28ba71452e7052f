from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands
from pamqp.common import FieldTable

from relay.bulk_amqp import content_header as ch
from relay.bulk_amqp import field_table
from relay.bulk_amqp.errors import MalformedProperties, Misuse

TEXTS = (
    ch.CONTENT_TYPE, ch.CONTENT_ENCODING, ch.CORRELATION_ID, ch.REPLY_TO, ch.EXPIRATION,
    ch.MESSAGE_ID, ch.TYPE, ch.USER_ID, ch.APP_ID, ch.CLUSTER_ID,
)  # fmt: skip
NUMBERS = {ch.DELIVERY_MODE: 1, ch.PRIORITY: 1, ch.TIMESTAMP: 8}
ORDER = sorted({*TEXTS, *NUMBERS, ch.HEADERS}, reverse=True)


def marshalled(headers: FieldTable | None = None) -> bytes:
    """Every property, by another library."""
    properties = commands.Basic.Properties(
        content_type="application/json",
        content_encoding="utf-8",
        headers=headers or {"plain": "text", "deep": {"list": [1, {"x-mesh-inner": None}]}},
        delivery_mode=2,
        priority=5,
        correlation_id="corr",
        reply_to="reply",
        expiration="60000",
        message_id="m-1",
        timestamp=datetime(2024, 5, 1, tzinfo=UTC),
        message_type="kind",
        user_id="alice",
        app_id="app",
    )
    properties.cluster_id = "there"  # AMQP has it, pamqp's constructor refuses it
    return properties.marshal()


def length(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def tagged(tag: bytes, size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).map(lambda data: tag + data)


names = st.binary(max_size=12)
scalars = st.one_of(
    st.just(b"V"),
    *(
        tagged(tag, size)
        for tag, size in (
            (b"t", 1), (b"b", 1), (b"B", 1), (b"s", 2), (b"u", 2), (b"I", 4), (b"i", 4),
            (b"f", 4), (b"D", 5), (b"l", 8), (b"L", 8), (b"d", 8), (b"T", 8),
        )
    ),
    st.binary(max_size=20).map(lambda data: b"S" + length(data)),
    st.binary(max_size=20).map(lambda data: b"x" + length(data)),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: b"A" + length(b"".join(items))),
        st.lists(st.tuples(names, inner), max_size=3).map(
            lambda pairs: b"F" + length(b"".join(field_table.entry(*pair) for pair in pairs))
        ),
    ),
    max_leaves=8,
)
tables = st.lists(st.tuples(names, values), max_size=5)


@st.composite
def property_blocks(
    draw: st.DrawFn,
) -> tuple[bytes, dict[int, bytes | int], list[tuple[bytes, bytes]]]:
    present = draw(st.sets(st.sampled_from(ORDER)))
    known: dict[int, bytes | int] = {}
    table: list[tuple[bytes, bytes]] = []
    parts = [struct.pack(">H", sum(present) | draw(st.integers(0, 3)))]
    for which in ORDER:
        if which not in present:
            continue
        if which == ch.HEADERS:
            table = draw(tables)
            parts.append(length(b"".join(field_table.entry(*pair) for pair in table)))
        elif which in NUMBERS:
            known[which] = number = draw(st.integers(0, 256 ** NUMBERS[which] - 1))
            parts.append(number.to_bytes(NUMBERS[which], "big"))
        else:
            known[which] = text = draw(st.binary(max_size=40))
            parts.append(bytes([len(text)]) + text)
    return b"".join(parts), known, table


def test_every_property_is_read_as_another_library_wrote_it() -> None:
    block = marshalled()
    assert [ch.text(block, which) for which in TEXTS] == [
        b"application/json", b"utf-8", b"corr", b"reply", b"60000",
        b"m-1", b"kind", b"alice", b"app", b"there",
    ]  # fmt: skip
    assert ch.number(block, ch.DELIVERY_MODE) == 2
    assert ch.number(block, ch.PRIORITY) == 5
    assert ch.number(block, ch.TIMESTAMP) == 1714521600
    assert ch.header(block, b"plain") == b"S\x00\x00\x00\x04text"
    assert ch.header(block, b"x-mesh-inner") is None
    ch.check(block)


def test_a_message_without_properties_has_none() -> None:
    assert ch.properties_present(ch.NONE_PRESENT) == 0
    assert ch.text(ch.NONE_PRESENT, ch.MESSAGE_ID) is None
    assert ch.number(ch.NONE_PRESENT, ch.TIMESTAMP) is None
    assert ch.headers(ch.NONE_PRESENT) is None
    assert ch.header(ch.NONE_PRESENT, b"x") is None


def test_one_property_is_replaced_and_every_other_byte_stays() -> None:
    block = marshalled()
    changed = ch.rewrite(block, {ch.EXPIRATION: b"1", ch.USER_ID: b"relay"})
    assert changed == block.replace(b"\x0560000", b"\x011").replace(b"\x05alice", b"\x05relay")


def test_properties_are_added_and_taken_out_in_their_places() -> None:
    block = ch.rewrite(
        ch.NONE_PRESENT, {ch.CLUSTER_ID: b"paris", ch.DELIVERY_MODE: 2, ch.MESSAGE_ID: b"m"}
    )
    assert block == b"\x10\x84\x02\x01m\x05paris"
    assert ch.rewrite(block, {ch.DELIVERY_MODE: None, ch.CLUSTER_ID: None}) == b"\x00\x80\x01m"


def test_headers_are_added_behind_those_that_are_there() -> None:
    added = field_table.entry(b"x-mesh-path", field_table.long_string(b"paris"))
    block = ch.rewrite(b"\x20\x00" + length(b"\x01aV"), {}, added)
    assert ch.headers(block) == b"\x01aV" + added
    assert ch.headers(ch.rewrite(ch.NONE_PRESENT, {}, added)) == added


def test_only_outermost_headers_with_the_prefix_are_cut() -> None:
    block = marshalled(
        {"x-mesh-path": "forged", "a": [1], "b": {"x-mesh-path": "kept"}, "x-delivery-count": 1}
    )
    cut = ch.without_headers(block, (b"x-mesh-",), (b"x-delivery-count",))
    assert cut == marshalled({"a": [1], "b": {"x-mesh-path": "kept"}})


def test_nothing_to_cut_gives_the_same_object() -> None:
    for block in (marshalled(), marshalled({"b": {"x-mesh-path": "kept"}}), ch.NONE_PRESENT):
        assert ch.without_headers(block, (b"x-mesh-",), (b"x-delivery-count",)) is block


def test_a_table_that_held_only_what_is_cut_goes_altogether() -> None:
    counted = ch.rewrite(b"\x10\x80\x02\x01m", {}, field_table.entry(b"x-delivery-count", b"b\x01"))
    assert ch.without_headers(counted, (), (b"x-delivery-count",)) == b"\x10\x80\x02\x01m"


def test_a_name_in_the_text_of_a_property_is_no_header() -> None:
    block = ch.rewrite(ch.NONE_PRESENT, {ch.MESSAGE_ID: b"x-mesh-path"})
    assert ch.without_headers(block, (b"x-mesh-",)) is block
    assert ch.header(block, b"x-mesh-path") is None


@pytest.mark.parametrize(
    "changes",
    [
        {ch.MESSAGE_ID: b"m" * 256},
        {ch.MESSAGE_ID: 7},
        {ch.PRIORITY: 256},
        {ch.PRIORITY: b"5"},
        {ch.TIMESTAMP: -1},
        {ch.HEADERS: b""},
        {0x0002: b""},
    ],
)
def test_values_that_amqp_cannot_carry_are_a_misuse(changes: dict[int, bytes | int]) -> None:
    with pytest.raises(Misuse):
        ch.rewrite(ch.NONE_PRESENT, changes)


@given(property_blocks())
def test_what_is_there_is_found_and_what_is_not_is_none(
    case: tuple[bytes, dict[int, bytes | int], list[tuple[bytes, bytes]]],
) -> None:
    block, known, table = case
    ch.check(block)
    assert ch.rewrite(block, {}) == block
    for which in TEXTS:
        assert ch.text(block, which) == known.get(which)
    for which in NUMBERS:
        assert ch.number(block, which) == known.get(which)
    for name, value in dict(reversed(table)).items():
        assert ch.header(block, name) == value


@given(property_blocks(), st.sampled_from(TEXTS), st.binary(max_size=20))
def test_what_is_set_is_read_and_setting_it_back_restores_every_byte(
    case: tuple[bytes, dict[int, bytes | int], list[tuple[bytes, bytes]]], which: int, text: bytes
) -> None:
    block, known, _ = case
    changed = ch.rewrite(block, {which: text})
    assert ch.text(changed, which) == text
    assert ch.rewrite(changed, {which: known.get(which)}) == block


@given(property_blocks(), st.lists(st.tuples(names, values), min_size=1, max_size=3))
def test_headers_of_ours_go_in_and_out_without_a_trace(
    case: tuple[bytes, dict[int, bytes | int], list[tuple[bytes, bytes]]],
    ours: list[tuple[bytes, bytes]],
) -> None:
    block, _, table = case
    added = b"".join(field_table.entry(b"x-mesh-" + name, value) for name, value in ours)
    if any(name.startswith(b"x-mesh-") for name, _ in table):
        return
    changed = ch.rewrite(block, {}, added)
    ch.check(changed)
    restored = ch.without_headers(changed, (b"x-mesh-",))
    if ch.headers(block) == b"":
        assert ch.rewrite(restored, {}, b"\x00V") == ch.rewrite(block, {}, b"\x00V")
    else:
        assert restored == block


@given(st.binary(max_size=120), st.sampled_from(ORDER))
@settings(max_examples=300)
def test_arbitrary_bytes_raise_the_declared_error_and_no_other(block: bytes, which: int) -> None:
    for act in (
        lambda: ch.check(block),
        lambda: ch.text(block, which),
        lambda: ch.number(block, which),
        lambda: ch.header(block, block[-3:]),
        lambda: ch.rewrite(block, {ch.USER_ID: b"x"}, b"\x01aV"),
        lambda: ch.without_headers(block, (block[-2:],), (block[-3:],)),
        lambda: field_table.check(block),
    ):
        with suppress(MalformedProperties):
            act()


def test_another_propertys_bytes_lead_into_no_table() -> None:
    block = b"\x20\x80" + b"\x00\x00\x00\x03\x01al" + b"\x07x-mesh-"  # the table is cut short
    assert ch.without_headers(block, (b"x-mesh-",)) is block
    cut_short = b"\x20\x00" + b"\x00\x00\x00\x09\x07x-mesh-l"
    with pytest.raises(MalformedProperties):
        ch.without_headers(cut_short, (b"x-mesh-",))


@given(property_blocks(), st.data())
@settings(max_examples=300)
def test_a_damaged_block_raises_the_declared_error_and_no_other(
    case: tuple[bytes, dict[int, bytes | int], list[tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    damaged = bytearray(case[0])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        ch.check(bytes(damaged))
    except MalformedProperties:
        return
    for which in TEXTS:
        ch.text(bytes(damaged), which)
    ch.without_headers(bytes(damaged), (b"",))


def test_very_deep_tables_are_checked_without_recursion() -> None:
    deep = b""
    for _ in range(20_000):
        deep = b"\x01nF" + length(deep)
    field_table.check(deep)
    with pytest.raises(MalformedProperties):
        field_table.check(deep[:-1] if deep else b"")


@pytest.mark.parametrize(
    "table",
    [b"\x01aZ", b"\x05ab", b"\x01aS\x00\x00\x00\x09x", b"\x01aI\x00", b"\x01aA\x00\x00\x00\x02ZZ"],
)
def test_a_table_that_rabbitmq_would_refuse_is_named(table: bytes) -> None:
    with pytest.raises(MalformedProperties):
        field_table.check(table)


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (field_table.long_string(b"hi"), b"S\x00\x00\x00\x02hi"),
        (field_table.boolean(True), b"t\x01"),
        (field_table.boolean(False), b"t\x00"),
        (field_table.long_integer(-2), b"l" + b"\xff" * 7 + b"\xfe"),
    ],
)
def test_values_are_encoded_as_the_grammar_says(encoded: bytes, expected: bytes) -> None:
    assert encoded == expected


def test_an_entry_that_amqp_cannot_carry_is_a_misuse() -> None:
    with pytest.raises(Misuse):
        field_table.entry(b"n" * 256, b"V")
    with pytest.raises(Misuse):
        field_table.long_integer(1 << 63)
