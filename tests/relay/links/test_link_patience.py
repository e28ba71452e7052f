"""A line that is slow, blocked, or leads to nobody: little is sent in vain, and all arrives in the
end; and what belongs to a former session moves nothing in the present one.
"""

from __future__ import annotations

import pytest

from relay.links.settings import KIB, MIB, LinkSettings
from relay.links.wire import Ack, decode_frame, encode_ack
from tests.relay.link_world import LinkWorld
from tests.relay.links.test_link_machines import filled, in_order


@pytest.mark.parametrize(
    ("bytes_per_s", "size"), [(8_000.0, 256 * KIB), (125_000.0, 768 * KIB)], ids=["64k", "1M"]
)
def test_batches_that_take_longer_than_every_wait_cross_a_slow_line(
    bytes_per_s: float, size: int
) -> None:
    # One frame is 32 s on the way where 5 s without progress are too many, at first.
    world = filled(LinkWorld(bytes_per_s=bytes_per_s), 12, size)
    world.start()
    at_best = 12 * size / bytes_per_s
    world.run_until_arrived(2 * at_best + 600)
    in_order(world)
    assert world.meeting.bytes_published < 2 * 12 * size


def test_while_nobody_receives_only_questions_go_out_ever_more_seldom() -> None:
    world = filled(LinkWorld(), 300, 100 * KIB)
    world.start_sender()
    world.time.run_until(3600)
    assert world.meeting.bytes_published < 300 * 100  # a question every half minute or so
    assert world.batches_sent == []
    world.start_receiver()
    world.run_until_arrived(60)
    in_order(world)


def test_a_receiver_that_goes_in_mid_window_is_sent_no_second_window() -> None:
    world = filled(LinkWorld(bytes_per_s=4e6), 300, 100 * KIB)
    world.start()
    world.time.run_until(1.0)
    world.crash_receiver()
    world.time.run_until(3600)
    assert world.meeting.bytes_published < 4e6 + world.settings.window_bytes + MIB
    assert world.sender is not None
    assert world.sender.counters.sessions == 1
    world.start_receiver()
    world.run_until_arrived(120)
    in_order(world)


def test_a_line_that_is_blocked_for_an_hour_is_waited_for_and_given_nothing_twice() -> None:
    world = filled(LinkWorld(), 300, 100 * KIB)
    world.start()
    world.time.run_until(0.2)
    assert world.sender_end is not None
    world.sender_end.blocked = True
    world.time.run_until(3600)
    assert world.sender is not None
    assert world.sender.outstanding
    assert world.sender_end.status.bytes_waiting < world.settings.window_bytes + MIB
    world.sender_end.unblock()
    world.run_until_arrived(60)
    in_order(world)
    assert world.sender.counters.sessions == 1
    assert len(world.batches_sent) == 300


def test_what_a_session_that_timed_out_left_in_its_socket_is_not_in_the_next_ones_way() -> None:
    # 2 Mbit/s: what is in the socket when acknowledgements stop coming takes half a minute.
    world = filled(LinkWorld(bytes_per_s=250_000.0), 120, 100 * KIB)
    world.start()
    world.time.run_until(2.0)
    first, meeting = world.sender_end, world.meeting
    assert first is not None
    assert first.status.bytes_waiting > 7 * MIB
    meeting.tamper_acks = lambda frame: ()
    world.time.run_until(2.0 + world.settings.silence_s + 1)
    assert first.closed
    assert world.sender_end is not None
    assert world.sender_end.status.bytes_waiting == 0
    meeting.tamper_acks = lambda frame: (frame,)
    world.run_until_arrived(60)
    in_order(world)
    assert meeting.bytes_published < 1.1 * 120 * 100 * KIB


def test_an_acknowledgement_of_another_session_or_run_moves_nothing() -> None:
    world = LinkWorld(settings=LinkSettings(window_bytes=64 * KIB))
    acks: list[bytes] = []

    def keep(frame: bytes) -> tuple[bytes, ...]:
        acks.append(frame)
        return (frame,)

    world.meeting.tamper_acks = keep
    filled(world, 40)
    world.start()
    world.run_until_arrived(5)
    world.time.run_until(world.time.now + 5)
    told = [said for frame in acks if isinstance(said := decode_frame(frame), Ack)]
    assert told[-1].logged == 40
    world.crash_sender()
    world.target.stuck = True
    world.start_sender()
    world.time.run_until(world.time.now + 5)
    filled(world, 30)
    world.time.run_until(world.time.now + 1)
    sender = world.sender
    assert sender is not None
    assert sender.outstanding == 30
    before = sender.place
    # Either would acknowledge ten of its batches that no log has.
    of_the_former = told[-1]._replace(logged=10, arrived=10)
    assert of_the_former.run == world.target.run
    of_another_run = of_the_former._replace(nonce=sender._nonce, run=b"another1")
    for late in (of_the_former, of_another_run):
        sender.frame("user-tokyo", encode_ack(1, late), world.time.now)
        assert (sender.place, sender.outstanding) == (before, 30)
    world.target.unstick()
    world.run_until_arrived(60)
    in_order(world)
