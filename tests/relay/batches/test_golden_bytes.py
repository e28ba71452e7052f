"""Bytes as the first release wrote them: read, and written, by every later one that says it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.batches.batch import (
    BatchHeader,
    BatchKind,
    BatchName,
    Entry,
    Fragment,
    Predecessor,
    Series,
)
from relay.batches.format import append_to_path, decode_entries, read_header, seal, verify_digest
from relay.batches.known_formats import FIRST
from relay.batches.name_set import NameSet
from relay.links import wire

GOLDEN = Path(__file__).parents[1] / "golden" / "version_1.hex"
BYTES = {
    name: bytes.fromhex(digits)
    for name, digits in (
        line.split() for line in GOLDEN.read_text().splitlines() if not line.startswith("#")
    )
}
BATCHES = ("messages", "mark", "fragment")
SERIES = Series("paris", b"incarnat", "orders", 0, ("sydney", "tokyo"))
NOW = 1_700_000_000_000
ENTRIES = [
    Entry(
        bytes([i]) * 16, b"order.new", b"\x10\x00\x02", b"body %d" % i, NOW + 100 * i, 5 * i, i == 2
    )
    for i in range(3)
]
ENTRIES[2] = ENTRIES[2]._replace(doubtful=True)
NONCE, RUN = b"nonce678", b"run45678"


def header(kind: BatchKind, fragment: Fragment | None = None) -> BatchHeader:
    return BatchHeader(
        kind,
        BatchName(SERIES, 7),
        12,
        (Predecessor(b"01234567", 41), Predecessor(b"abcdefgh", -1)),
        "5f1c0aa1b2c3",
        0,
        0,
        100,
        1000,
        NOW,
        NOW + 500,
        ("paris",),
        fragment,
    )


WRITTEN = {
    "messages": (header(BatchKind.MESSAGES), ENTRIES),
    "mark": (header(BatchKind.MARK), []),
    "fragment": (header(BatchKind.FRAGMENT, Fragment(3, 20)), ENTRIES[:1]),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_the_first_release_is_read(name: str) -> None:
    wanted, entries = WRITTEN[name]
    found = read_header(BYTES[name], FIRST.newest_batch)
    verify_digest(BYTES[name])
    assert (found.kind, found.name, found.fragment) == (wanted.kind, wanted.name, wanted.fragment)
    assert (found.predecessors, found.revision) == (wanted.predecessors, wanted.revision)
    assert found.total_messages == 100 + len(entries)
    assert (found.format, found.fields) == (1, ())
    assert decode_entries(BYTES[name]) == entries


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_written_as_the_first_release_did(name: str) -> None:
    _, data = seal(*WRITTEN[name])
    # The last part is zstd's: another version of it may find other bytes for the same block.
    where = data.index(b"\x28\xb5\x2f\xfd")
    assert data[:15] == BYTES[name][:15]
    assert data[32:where] == BYTES[name][32:where]  # between them the digest, of the block too


def test_a_batch_is_passed_on_as_the_first_release_did() -> None:
    assert append_to_path(BYTES["messages"], "tokyo") == BYTES["relayed"]
    verify_digest(BYTES["relayed"])


FRAMES = {
    "ask": wire.Ask(NONCE, wire.NO_RUN, NOW),
    "hello": wire.Hello(wire.NO_NONCE, RUN),
    "pulse": wire.Pulse(NONCE, RUN, 9, NOW, wire.Measured(-40, 200)),
    "welcome": wire.Welcome(NONCE, RUN, NOW + 1, NOW, b"log-of-tokyo....", b"\1\0\0"),
    "ack": wire.Ack(NONCE, RUN, 7, 9, NOW + 2, 0),
    "refused": wire.Refused(NONCE, RUN, 8, "not ours"),
    "over": wire.Over(NONCE, RUN, wire.Cause.GAP, 4, "lost"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_what_an_end_of_the_first_release_says_is_read(name: str) -> None:
    assert wire.decode_frame(BYTES[name]) == FRAMES[name]


def test_a_batch_frame_of_the_first_release_is_read() -> None:
    frame = BYTES["batch_frame"]
    said = wire.decode_frame(frame)
    assert isinstance(said, wire.BatchFrame)
    assert (said.nonce, said.run, said.number, said.suspect) == (NONCE, RUN, 5, True)
    assert said.batch == BYTES["mark"]
    assert wire.path_matches(frame, said.check, ("paris",))


def test_an_end_that_speaks_as_the_first_release_says_the_same_bytes() -> None:
    assert wire.encode_ask(NONCE, NOW, FIRST) == BYTES["ask"]
    assert wire.encode_hello(RUN, FIRST) == BYTES["hello"]
    mark = BYTES["mark"]
    batch_frame = wire.encode_batch_frame(1, NONCE, RUN, 5, mark, ("paris",), suspect=True)
    assert batch_frame == BYTES["batch_frame"]
    assert wire.encode_pulse(1, NONCE, RUN, 9, NOW, wire.Measured(-40, 200)) == BYTES["pulse"]
    welcome, ack = FRAMES["welcome"], FRAMES["ack"]
    assert isinstance(welcome, wire.Welcome)
    assert isinstance(ack, wire.Ack)
    assert wire.encode_welcome(welcome) == BYTES["welcome"]
    assert wire.encode_ack(1, ack) == BYTES["ack"]
    assert wire.encode_refused(1, NONCE, RUN, 8, "not ours") == BYTES["refused"]
    assert wire.encode_over(1, NONCE, RUN, wire.Cause.GAP, 4, "lost") == BYTES["over"]


def test_what_a_receiver_has_otherwise_is_said_in_its_own_version_alone() -> None:
    names = NameSet()
    names.add_range(SERIES, 3, 9)
    have = wire.Have(NONCE, RUN, True, names.encode())
    frame = wire.encode_have(3, have)
    assert wire.decode_frame(frame) == have
    assert frame[:2] == b"\x03\x15"
    with pytest.raises(wire.BadFrame):
        wire.decode_frame(wire.encode_have(2, have))


def test_what_is_offered_besides_stands_behind_what_the_first_release_reads() -> None:
    assert wire.encode_ask(NONCE, NOW)[22:30] == BYTES["ask"][22:30]
    assert wire.encode_hello(RUN)[6:22] == BYTES["hello"][6:22]
    assert wire.encode_ask(NONCE, NOW)[0] == wire.encode_hello(RUN)[0] == 1
