"""One session of a receiver, and the nonces by which sessions are known."""

from __future__ import annotations

from relay.links.receiver.session import ReceiverSession, SessionNonces
from relay.links.wire import Ack, decode_frame

NONCE, RUN = b"n" * 8, b"r" * 8
VERSION = 1


def session_of(*sizes: int) -> ReceiverSession:
    session = ReceiverSession(1, NONCE, RUN, VERSION)
    for size in sizes:
        session.note_arrival(size)
    return session


def test_what_is_logged_early_counts_when_all_before_it_is_logged() -> None:
    session = session_of(10, 20, 30)
    session.done(3)
    session.done(2)
    assert (session.arrived, session.logged, session.unacked_bytes) == (3, 0, 0)
    session.done(1)
    assert (session.logged, session.unacked_bytes) == (3, 60)
    assert (session.early, [*session.waiting]) == (set(), [])


def test_an_ack_tells_of_all_that_is_logged_and_echoes_once() -> None:
    session = session_of(10, 20)
    session.done(1)
    session.echo_ms = 77
    first, second = (decode_frame(session.ack(5.0, wall_ms)) for wall_ms in (1000, 2000))
    assert first == Ack(NONCE, RUN, 1, 2, 1000, 77)
    assert second == Ack(NONCE, RUN, 1, 2, 2000, 0)
    assert (session.acked, session.acked_at, session.unacked_bytes) == (1, 5.0, 0)


def test_a_nonce_begins_one_session_and_only_if_it_was_offered() -> None:
    nonces = SessionNonces()
    assert not nonces.take_up(NONCE)
    nonces.offer(NONCE)
    assert nonces.take_up(NONCE)
    assert not nonces.take_up(NONCE)
    nonces.offer(NONCE)
    nonces.forget_offers()
    assert not nonces.take_up(NONCE)


def test_the_oldest_nonces_are_forgotten_first() -> None:
    nonces = SessionNonces()
    for number in range(100):
        nonces.end(bytes([number]) * 8, b"over %d" % number)
        nonces.end(NONCE, b"over and over")
    assert nonces.over_of(NONCE) == b"over and over"
    assert nonces.over_of(bytes([99]) * 8) == b"over 99"
    assert not nonces.has_ended(bytes([0]) * 8)
