"""Datagrams of a group: what is sealed is opened by members alone, and once."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.group.datagram import (
    NO_FRAME,
    OVERHEAD,
    BadDatagram,
    DatagramOpener,
    DatagramSealer,
    FramePiece,
    GroupMessage,
    GroupPulse,
    GroupStream,
    Nack,
    Received,
    new_epoch,
    site_id,
)

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
ALIKE = bytes(range(32, 64))
"""Agreement of the sites of the group."""
PARIS = GroupStream(site_id("paris"), new_epoch(1_700_000_000_000, b"12345678"))
TOKYO = GroupStream(site_id("tokyo"), new_epoch(1_700_000_000_500, b"abcdefgh"))
SITES = [PARIS.publisher, TOKYO.publisher]
STRANGER = GroupStream(site_id("stranger"), PARIS.epoch)
MESSAGES: list[GroupMessage] = [
    FramePiece(PARIS, 5, 0, 2, 25, b"x" * 13),
    FramePiece(TOKYO, (1 << 63) + 1, 254, 190, 190 * 13, b"y" * 13),
    GroupPulse(NO_FRAME, 1_700_000_000_000, ""),
    GroupPulse(7, 1, "paris/0001/orders.0>*/17"),
    Nack(TOKYO, ((1, 1), (2, 255))),
]


def sealed(message: GroupMessage, agreement: bytes = ALIKE, key: bytes = KEY) -> bytes:
    return DatagramSealer(agreement, key, PARIS).seal(message)


@pytest.mark.parametrize("message", MESSAGES)
def test_what_is_sealed_is_opened(message: GroupMessage) -> None:
    opener = DatagramOpener(ALIKE, [OTHER_KEY, KEY], SITES)
    assert opener.open(sealed(message)) == Received(PARIS, message)


def test_a_piece_takes_no_more_than_its_overhead() -> None:
    own = FramePiece(PARIS, 0, 0, 1, 1000, b"x" * 1000)
    repair = FramePiece(TOKYO, 0, 0, 1, 1000, b"x" * 1000)
    assert len(sealed(own)) < len(sealed(repair)) == 1000 + OVERHEAD


@pytest.mark.parametrize("message", MESSAGES)
def test_strangers_and_other_meshes_are_foreign(message: GroupMessage) -> None:
    opener = DatagramOpener(ALIKE, [KEY], SITES)
    for datagram in (sealed(message, key=OTHER_KEY), b"ISG", b""):
        with pytest.raises(BadDatagram, match="foreign"):
            opener.open(datagram)
    with pytest.raises(BadDatagram, match="foreign"):
        DatagramOpener(ALIKE, [KEY], [TOKYO.publisher]).open(sealed(message))
    with pytest.raises(BadDatagram, match="of another mesh file"):
        opener.open(sealed(message, agreement=bytes(32)))
    assert opener.open(sealed(message)), "what is foreign changes nothing"


def test_an_agreement_that_begins_alike_is_foreign() -> None:
    datagram = sealed(MESSAGES[0], agreement=ALIKE[:4] + bytes(28))
    with pytest.raises(BadDatagram, match="foreign"):
        DatagramOpener(ALIKE, [KEY], SITES).open(datagram)


def test_an_older_epoch_of_a_site_is_not_heard_again() -> None:
    opener = DatagramOpener(ALIKE, [KEY], SITES)
    later = PARIS._replace(epoch=new_epoch(1_700_000_000_001, bytes(8)))
    old, new = DatagramSealer(ALIKE, KEY, PARIS), DatagramSealer(ALIKE, KEY, later)
    pulse = GroupPulse(0, 0, "")
    assert opener.open(old.seal(pulse)).sender == PARIS
    assert opener.open(new.seal(pulse)).sender == later
    with pytest.raises(BadDatagram, match="of an older epoch"):
        opener.open(old.seal(pulse))
    assert opener.open(new.seal(pulse)).sender == later


def test_a_site_may_go_over_to_another_key() -> None:
    opener = DatagramOpener(ALIKE, [KEY, OTHER_KEY], SITES)
    later = PARIS._replace(epoch=new_epoch(1_700_000_000_001, bytes(8)))
    opener.open(sealed(MESSAGES[0]))
    assert opener.open(DatagramSealer(ALIKE, OTHER_KEY, later).seal(MESSAGES[3])).sender == later


def test_a_datagram_is_opened_once_in_whatever_order_they_come() -> None:
    sealer, opener = DatagramSealer(ALIKE, KEY, PARIS), DatagramOpener(ALIKE, [KEY], SITES)
    datagrams = [sealer.seal(GroupPulse(number, 0, "")) for number in range(200)]
    shuffled = random.Random(1).sample(datagrams, len(datagrams))
    for datagram in shuffled:
        opener.open(datagram)
    for datagram in shuffled:
        with pytest.raises(BadDatagram, match="repeated"):
            opener.open(datagram)


def test_a_datagram_that_is_too_old_to_know_counts_as_repeated() -> None:
    sealer, opener = DatagramSealer(ALIKE, KEY, PARIS), DatagramOpener(ALIKE, [KEY], SITES)
    first, *_, last = [sealer.seal(GroupPulse(number, 0, "")) for number in range(5000)]
    opener.open(last)
    with pytest.raises(BadDatagram, match="repeated"):
        opener.open(first)


@pytest.mark.parametrize("message", MESSAGES)
def test_no_bit_can_be_changed(message: GroupMessage) -> None:
    datagram = sealed(message)
    for position in range(len(datagram)):
        changed = bytearray(datagram)
        changed[position] ^= 1
        with pytest.raises(BadDatagram):
            DatagramOpener(ALIKE, [KEY], SITES).open(bytes(changed))


@given(st.binary(max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(BadDatagram):
        DatagramOpener(ALIKE, [KEY], SITES).open(b"ISG\x01" + garbage)


@given(st.integers(0, 255), st.binary(max_size=100))
def test_garbage_that_a_member_has_sealed_is_refused_or_read(kind: int, body: bytes) -> None:
    datagram = DatagramSealer(ALIKE, KEY, PARIS).seal_body(kind, body)
    with contextlib.suppress(BadDatagram):
        assert DatagramOpener(ALIKE, [KEY], SITES).open(datagram).sender == PARIS


@pytest.mark.parametrize("stream", [STRANGER, STRANGER._replace(epoch=bytes(16))])
def test_a_member_that_sends_in_the_name_of_no_site_is_refused(stream: GroupStream) -> None:
    opener, sealer = DatagramOpener(ALIKE, [KEY], SITES), DatagramSealer(ALIKE, KEY, PARIS)
    for message in (FramePiece(stream, 0, 0, 1, 5, b"x" * 5), Nack(stream, ((0, 1),))):
        with pytest.raises(BadDatagram, match="malformed"):
            opener.open(sealer.seal(message))


def test_counters_that_a_member_jumps_to_take_no_memory() -> None:
    opener = DatagramOpener(ALIKE, [KEY], SITES)
    sealer = DatagramSealer(ALIKE, KEY, PARIS)
    for counter in (0, 1, (1 << 64) - 2, (1 << 64) - 1):
        sealer._counter = counter
        opener.open(sealer.seal(GroupPulse(0, 0, "")))
    seen = opener._senders[PARIS.publisher].seen
    assert seen._bits.bit_length() <= 2
