"""The applications' trace contexts: which headers count, and which of a batch's messages."""

from __future__ import annotations

import pytest

from relay.batches.format import decode_entries
from relay.batches.opened_batch import OpenedEntries, open_batch
from relay.bulk_amqp import field_table
from relay.bulk_amqp.content_header import NONE_PRESENT
from relay.tracing.message_context import (
    MOST_LINKED,
    MessageContext,
    context_of,
    contexts_of,
    parse_traceparent,
)
from tests.message_properties import properties
from tests.relay.tracing.traced_messages import (
    SPAN,
    TRACE,
    message,
    traced_batch,
    traceparent,
    with_header,
)

CONTEXT = MessageContext(int(TRACE, 16), int(SPAN, 16), True)


def test_the_example_of_the_recommendation_is_read() -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01".encode()) == CONTEXT


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("02", False), ("03", True)])
def test_only_the_last_flag_says_sampled(flags: str, sampled: bool) -> None:
    context = parse_traceparent(f"00-{TRACE}-{SPAN}-{flags}".encode())
    assert context == CONTEXT._replace(is_sampled=sampled)


@pytest.mark.parametrize("text", [f" 00-{TRACE}-{SPAN}-01\t", f"01-{TRACE}-{SPAN}-01-more"])
def test_spaces_around_and_fields_of_later_versions_are_passed_over(text: str) -> None:
    assert parse_traceparent(text.encode()) == CONTEXT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"01-{TRACE}-{SPAN}-01more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN.upper()}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00_{TRACE}_{SPAN}_01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
    ],
)
def test_what_readers_are_to_ignore_is_ignored(text: str) -> None:
    assert parse_traceparent(text.encode()) is None


@pytest.mark.parametrize("text", [b"\xff" * 55, f"00-{TRACE}-{SPAN}-01\0".encode()])
def test_bytes_that_are_no_text_are_ignored(text: bytes) -> None:
    assert parse_traceparent(text) is None


@pytest.mark.parametrize(
    "value",
    [
        b"l" + bytes(8),
        b"V",
        b"t\x01",
        b"F" + (0).to_bytes(4),
        b"S" + (0).to_bytes(4),
        b"A" + (60).to_bytes(4) + b"S" + (55).to_bytes(4) + traceparent().encode(),
    ],
)
def test_a_header_that_is_no_string_is_ignored(value: bytes) -> None:
    assert context_of(properties(field_table.entry(b"traceparent", value))) is None


def test_a_header_of_bytes_is_read_as_one_of_text() -> None:
    text = traceparent().encode()
    value = b"x" + len(text).to_bytes(4) + text
    assert context_of(properties(field_table.entry(b"traceparent", value))) is not None


@pytest.mark.parametrize(
    "raw",
    [
        NONE_PRESENT,
        properties(type=traceparent().encode(), message_id=b"traceparent"),
        with_header(traceparent())[:-3],
        b"",
        b"traceparent",
    ],
)
def test_properties_without_the_header_or_cut_short_have_no_context(raw: bytes) -> None:
    assert context_of(raw) is None


def test_of_ten_thousand_messages_the_first_eight_spans_are_taken() -> None:
    entries = [message(n, with_header(traceparent(n // 2 + 1))) for n in range(10_000)]
    contexts = contexts_of(OpenedEntries(entries))
    assert [one.span_id for one in contexts.sampled] == [*range(1, MOST_LINKED + 1)]


def test_another_header_that_looks_the_same_in_each_message_hides_none() -> None:
    alike = field_table.entry(
        b"before", field_table.long_string(f"00-{'a' * 32}-{SPAN}-01".encode())
    )
    raws = [
        properties(
            alike
            + field_table.entry(b"traceparent", field_table.long_string(traceparent(n).encode()))
        )
        for n in (1, 2, 3)
    ]
    found = contexts_of(OpenedEntries([message(n, raw) for n, raw in enumerate(raws)]))
    assert [context.span_id for context in found.sampled] == [1, 2, 3]


def test_messages_that_are_not_sampled_are_no_links() -> None:
    texts = [traceparent(n, sampled=n % 3 == 0) for n in range(1, 31)]
    header, data = traced_batch(*texts)
    contexts = contexts_of(open_batch(data, header))
    assert [one.span_id for one in contexts.sampled] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert contexts.parent == contexts.sampled[0]


def test_one_that_is_not_sampled_stands_for_the_batch_where_none_is() -> None:
    header, data = traced_batch(traceparent(7, sampled=False), "rubbish")
    contexts = contexts_of(open_batch(data, header))
    assert not contexts.sampled
    assert contexts.parent == MessageContext(int(TRACE, 16), 7, False)


def test_both_ways_to_open_a_batch_give_the_same_contexts() -> None:
    header, data = traced_batch(traceparent(1), "rubbish", traceparent(2, sampled=False))
    entries = OpenedEntries(decode_entries(data))
    assert contexts_of(open_batch(data, header)) == contexts_of(entries)
