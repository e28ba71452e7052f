"""The delivered message's properties: what the stamp adds, and that all else stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.bulk_amqp import field_table
from relay.bulk_amqp.content_header import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_TYPE,
    DELIVERY_MODE,
    MESSAGE_ID,
    NONE_PRESENT,
    USER_ID,
    headers,
    rewrite,
    text,
)
from relay.bulk_amqp.errors import MalformedProperties
from relay.delivery.properties import DeliveryStamp, text_field, true_field

ADDED = text_field(b"x-mesh-exchange", b"orders") + text_field(b"x-mesh-path", b"tokyo,paris")


def stamp() -> DeliveryStamp:
    return DeliveryStamp("orders", ("tokyo", "paris"), "relay")


def test_added_headers_stand_behind_the_publisher_s_own() -> None:
    own = field_table.entry(b"a", field_table.long_string(b"1"))
    made = stamp().apply(rewrite(NONE_PRESENT, {MESSAGE_ID: b"m"}, own), flagged=False)
    assert headers(made) == own + ADDED
    found = (text(made, MESSAGE_ID), text(made, USER_ID), text(made, CLUSTER_ID))
    assert found == (b"m", b"relay", b"tokyo")


def test_a_flag_is_of_one_message_only() -> None:
    made, raw = stamp(), rewrite(NONE_PRESENT, {MESSAGE_ID: b"m"})
    plain = made.apply(raw, flagged=False)
    flagged = made.apply(raw, flagged=True)
    assert headers(flagged) == ADDED + true_field(b"x-mesh-redelivered")
    assert made.apply(raw, flagged=False) == plain
    assert headers(plain) == ADDED


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                CONTENT_TYPE: st.binary(max_size=9),
                DELIVERY_MODE: st.integers(1, 2),
                MESSAGE_ID: st.sampled_from([b"m", b"x-death", b"another"]),
                APP_ID: st.binary(max_size=9),
            },
        ),
        max_size=20,
    )
)
def test_a_stamp_that_was_used_stamps_as_a_new_one_does(
    messages: list[dict[int, bytes | int | None]],
) -> None:
    used = stamp()
    for values in messages:
        raw = rewrite(NONE_PRESENT, values)
        made = used.apply(raw, flagged=False)
        assert made == stamp().apply(raw, flagged=False)
        assert made == rewrite(raw, {USER_ID: b"relay", CLUSTER_ID: b"tokyo"}, ADDED)


def test_bytes_that_are_no_properties_are_refused_by_a_used_stamp_too() -> None:
    made = stamp()
    made.apply(NONE_PRESENT, flagged=False)
    for raw in (b"", b"\0", b"\x20\0\0\0\1"):
        with pytest.raises(MalformedProperties):
            made.apply(raw, flagged=False)
