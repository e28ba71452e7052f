"""What a broker says when it takes a message in no form."""

from __future__ import annotations

import pytest

from relay.bulk_amqp import ChannelClosed
from relay.rabbit_exchange import most_body_bytes


@pytest.mark.parametrize(
    ("code", "text", "most"),
    [
        (
            406,
            "PRECONDITION_FAILED - message size 16777217 is larger than configured max size "
            "16777216",
            16_777_216,
        ),
        (406, "PRECONDITION_FAILED - message size 600 is larger than max size 512", 512),
        (406, "PRECONDITION_FAILED - user_id property set to 'a' but authenticated as 'b'", None),
        (404, "NOT_FOUND - no exchange 'orders' in vhost '/'", None),
        (200, "closed by us", None),
    ],
)
def test_the_limit_of_a_message_is_read_from_why_the_channel_closed(
    code: int, text: str, most: int | None
) -> None:
    assert most_body_bytes(ChannelClosed(code, text)) == most
    assert most_body_bytes(None) is None
