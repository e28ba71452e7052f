"""The addresses of brokers. (How bad ones are refused: test_mesh_file_refusals.)"""

from __future__ import annotations

import pytest

from federation.brokers.broker_uri import (
    AmqpUri,
    BadUri,
    HostPort,
    parse_amqp,
    parse_host_port,
    parse_management,
    parse_stream,
)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("amqp://r@h", AmqpUri("h", 5672, "/", "r")),
        ("amqp://r@h/", AmqpUri("h", 5672, "/", "r")),
        ("amqp://r@h/%2F", AmqpUri("h", 5672, "/", "r")),
        ("amqps://r@h/v", AmqpUri("h", 5671, "v", "r", tls=True)),
        ("amqp://r:p%40ss@h:1/a%2Fb", AmqpUri("h", 1, "a/b", "r", "p@ss")),
        ("amqp://r%2Fx@[::1]:7/v", AmqpUri("::1", 7, "v", "r/x")),
    ],
)
def test_an_amqp_address_is_taken_apart(text: str, uri: AmqpUri) -> None:
    assert parse_amqp(text) == uri


def test_without_password_it_can_be_taken_apart_again() -> None:
    uri = parse_amqp("amqps://r%2Fx:secret@[::1]:7/a%2Fb")
    again = parse_amqp(uri.without_password())
    assert "secret" not in uri.without_password() + repr(uri)
    assert again == AmqpUri("::1", 7, "a/b", "r/x", tls=True)


def test_stream_and_management_addresses_have_ports_of_their_own() -> None:
    assert parse_stream("rabbitmq-stream://h") == HostPort("h", 5552)
    assert parse_stream("rabbitmq-stream+tls://h") == HostPort("h", 5551, True)
    assert parse_management("http://h") == HostPort("h", 15672)
    assert parse_management("https://h/") == HostPort("h", 15671, True)
    assert HostPort("::1", 5, True).as_uri("http", "https") == "https://[::1]:5"


def test_a_place_to_dial_is_host_and_port() -> None:
    assert parse_host_port("gw.example:5671") == ("gw.example", 5671)
    assert parse_host_port("[::1]:5671") == ("::1", 5671)


@pytest.mark.parametrize(
    "text", ["gw", "gw:", ":1", "gw:0", "gw:x", "a@gw:1", "gw:1/x", "http://g:1"]
)
def test_anything_else_is_no_place_to_dial(text: str) -> None:
    with pytest.raises(BadUri, match="write HOST:PORT"):
        parse_host_port(text)


@pytest.mark.parametrize(
    "text", ["amqp://r:secret@h:x/v", "amqp://r:secret@[h/v", "x://r:secret@h"]
)
def test_what_is_said_of_a_bad_address_never_shows_its_password(text: str) -> None:
    with pytest.raises(BadUri) as caught:
        parse_amqp(text)
    assert "secret" not in str(caught.value)
