from __future__ import annotations

import pytest

from relay.bulk_amqp import Address, AddressInvalid


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("amqp://", Address("localhost", 5672, False, "guest", "guest", "/")),
        ("amqp://h", Address("h", 5672, False, "guest", "guest", "/")),
        ("amqp://h/", Address("h", 5672, False, "guest", "guest", "/")),
        ("amqp://h/%2F", Address("h", 5672, False, "guest", "guest", "/")),
        ("amqps://h/v", Address("h", 5671, True, "guest", "guest", "v")),
        ("amqp://u:p@h:1234/v", Address("h", 1234, False, "u", "p", "v")),
        ("amqp://u%40x:p%2F%3A@h/a%2Fb", Address("h", 5672, False, "u@x", "p/:", "a/b")),
        ("amqp://u:@[::1]:99/v", Address("::1", 99, False, "u", "", "v")),
        (
            "amqps://u:@h/v?auth_mechanism=external",
            Address("h", 5671, True, "u", "", "v", is_external=True),
        ),
    ],
)
def test_a_uri_is_taken_apart(uri: str, address: Address) -> None:
    assert Address.parse(uri) == address


@pytest.mark.parametrize(
    "uri",
    ["http://h", "h:5672", "", "amqp://u:secret@h:port/v", "amqp://u:secret@h/v?heartbeat=1",
     "amqp://u:secret@h/v?auth_mechanism=external", "amqps://u:secret@h/v?auth_mechanism=plain",
     "amqp://u:secret@h/a/b", "amqp://u:secret@[h/v"],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused_without_showing_the_password(uri: str) -> None:
    with pytest.raises(AddressInvalid) as refused:
        Address.parse(uri)
    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_an_address_does_not_show_its_password() -> None:
    address = Address.parse("amqp://user:secret@h/v")
    assert "secret" not in f"{address} {address!r}"
