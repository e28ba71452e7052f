from __future__ import annotations

from relay.bulk_amqp.heartbeat import HeartbeatWatch


def test_a_heartbeat_is_due_when_nothing_was_sent_since_the_last_tick() -> None:
    watch = HeartbeatWatch()
    assert watch.tick(100, 1, listening=True)[0] is False
    assert watch.tick(100, 2, listening=True)[0] is True
    assert watch.tick(108, 3, listening=True)[0] is False


def test_a_peer_is_silent_after_four_ticks_of_half_a_heartbeat_without_a_byte() -> None:
    watch = HeartbeatWatch()
    heard = [watch.tick(0, 50, listening=True)[1] for _ in range(5)]
    assert heard == [False, False, False, False, True]


def test_any_byte_ends_the_silence() -> None:
    watch = HeartbeatWatch()
    for received in (1, 1, 1, 2, 2, 2, 2):
        assert watch.tick(0, received, listening=True)[1] is False


def test_silence_does_not_count_while_we_do_not_listen() -> None:
    watch = HeartbeatWatch()
    assert not any(watch.tick(0, 1, listening=False)[1] for _ in range(10))
    heard = [watch.tick(0, 1, listening=True)[1] for _ in range(4)]
    assert heard == [False, False, False, True]
