"""NATS as a way: configuration texts, and its protocol in bulk."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compare.downloads import version
from benchmarks.compare.nats import config
from benchmarks.compare.nats.config import NatsSite
from benchmarks.compare.nats.wire import (
    LoadWriter,
    Message,
    NatsServerError,
    Parser,
    acknowledgements,
    publication,
)
from isthmus.load.messages import HEAD

SERVED = (
    b'INFO {"server_id":"A"}\r\nPING\r\n'
    b"MSG _INBOX.a.acks 2 5\r\nhello\r\n"
    b"HMSG orders.x 3 $JS.ACK.7 12 17\r\nNATS/1.0\r\n\r\n1\r\n23\r\n"
    b"MSG _INBOX.a 1 _INBOX.b 0\r\n\r\n"
)
MESSAGES = [
    Message(b"2", b"", b"", b"hello"),
    Message(b"3", b"$JS.ACK.7", b"NATS/1.0\r\n\r\n", b"1\r\n23"),
    Message(b"1", b"_INBOX.b", b"", b""),
]


@pytest.mark.parametrize("size", [1, 7, 30, len(SERVED)])
def test_messages_are_the_same_in_whatever_pieces_they_come(size: int) -> None:
    parser = Parser()
    pieces = [SERVED[at : at + size] for at in range(0, len(SERVED), size)]
    assert [message for piece in pieces for message in parser.feed(piece)] == MESSAGES
    assert parser.pings == 1
    assert parser.info == b'{"server_id":"A"}'


def test_an_error_of_the_server_is_raised() -> None:
    with pytest.raises(NatsServerError, match="Authorization Violation"):
        Parser().feed(b"-ERR 'Authorization Violation'\r\n")


def test_each_message_of_a_load_has_its_head_its_id_and_where_its_answer_goes() -> None:
    run = bytes(range(8))
    written = LoadWriter(b"orders.x", b"_INBOX.a.acks", run, 3).publications(
        254, [1000, 2000], [b"first", b"second"]
    )
    # A publication is a message but for its subscription.
    received = written.replace(b"HPUB orders.x ", b"HMSG orders.x 9 ")
    first, second = Parser().feed(received)
    assert (first.sid, first.reply) == (b"9", b"_INBOX.a.acks")
    assert first.header.startswith(b"NATS/1.0\r\nNats-Msg-Id: 00010203-0405-4607-a003-")
    assert first.header.endswith(b"-0000000000fe\r\n\r\n")
    assert second.header.endswith(b"-0000000000ff\r\n\r\n")
    assert first.payload == HEAD.pack(run, 3, 254, 1000) + b"first"
    assert second.payload == HEAD.pack(run, 3, 255, 2000) + b"second"


def test_a_publication_is_a_message_but_for_its_subscription() -> None:
    written = publication(b"$JS.API.INFO", b"{}", b"_INBOX.a")
    received = written.replace(b"PUB $JS.API.INFO", b"MSG $JS.API.INFO 1")
    assert Parser().feed(received) == [Message(b"1", b"_INBOX.a", b"", b"{}")]


def test_each_message_of_a_stream_is_acknowledged_by_itself() -> None:
    messages = [Message(b"3", reply, b"", b"body") for reply in (b"$JS.ACK.7", b"$JS.ACK.8")]
    assert acknowledgements(messages) == (b"PUB $JS.ACK.7 4\r\n+ACK\r\nPUB $JS.ACK.8 4\r\n+ACK\r\n")


def test_a_destination_s_server_is_a_leaf_of_the_origin_s() -> None:
    site = NatsSite("site1", Path("/some/site1"), 4222, 7422, 20002, 8222)
    text = config.server_config(site, [20001])
    assert 'remotes: [\n    { url: "nats-leaf://127.0.0.1:20001" }\n  ]' in text
    assert 'listen: "127.0.0.1:4222"' in text
    assert 'listen: "127.0.0.1:7422"\n  advertise: "127.0.0.1:20002"' in text
    assert "domain: site1" in text
    assert "remotes: [\n  ]" in config.server_config(site, [])


def test_a_destination_s_stream_has_its_source_in_the_origin_s_domain() -> None:
    stream = config.sourced_stream("site0")
    assert "subjects" not in stream
    (source,) = stream["sources"]
    assert (source["name"], source["external"]["api"]) == (config.STREAM, "$JS.site0.API")


@pytest.mark.parametrize(
    ("printed", "ms"), [("201.5ms", 201.5), ("85µs", 0.085), ("1m2.5s", 62_500), ("0s", 0)]
)
def test_durations_are_read_as_go_prints_them(printed: str, ms: float) -> None:
    assert config.milliseconds(printed) == pytest.approx(ms)


def test_the_version_of_nats_is_that_of_its_pins() -> None:
    sums = (Path(config.__file__).parent / "go.sum").read_text()
    assert f"nats-server/v2 v{version('nats')} h1:" in sums
