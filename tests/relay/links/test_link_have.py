"""A receiver informs the sender of batches that its log has got otherwise: they are not sent, or
held back, and nothing is lost whatever becomes of the news.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.batches.batch import BatchName, Series
from relay.batches.format import append_to_path
from relay.batches.known_formats import KNOWN, as_before
from relay.batches.name_set import NameSet
from relay.links.sender.session import MAX_HAVE_BYTES, NEWS_LASTS_S
from relay.links.wire import Have, decode_frame, encode_have
from tests.relay.link_logs import TOKYO, make_batch
from tests.relay.link_world import LinkWorld

BATCHES = 20


def comes_otherwise(world: LinkWorld, *sequences: int, by_group: bool = True) -> None:
    """Log batches at the receiver that another way has brought."""
    for sequence in sequences:
        header, data = make_batch(sequence)
        ours = replace(header, path=(*header.path, TOKYO))

        def logged(known: bool, ours=ours) -> None:  # type: ignore[no-untyped-def]
            receiver, time = world.receiver, world.time
            if receiver is not None:
                world._do_receiver(
                    receiver.has_otherwise(ours.name, time.now, time.wall_ms, by_group=by_group)
                )

        world.target.append(ours, append_to_path(data, TOKYO), logged)


def running(world: LinkWorld) -> LinkWorld:
    """Run until a session has brought a first batch."""
    world.source.append(*make_batch(0))
    world.start()
    world.run_until_arrived(10)
    return world


def test_batches_that_came_otherwise_are_not_sent() -> None:
    world = running(LinkWorld())
    assert world.sender is not None
    comes_otherwise(world, *range(1, BATCHES))
    world.time.run_until(world.time.now + 1)
    assert all(world.sender.receiver_has(make_batch(n)[0].name) for n in range(BATCHES))
    for sequence in range(1, BATCHES):
        world.source.append(*make_batch(sequence))
    world.run_until_arrived(10)
    world.check_log()
    assert world.sender.counters.sent == 1
    assert world.sender.counters.skipped["the receiver has it"] == BATCHES - 1
    assert world.sender.place is not None
    assert world.sender.place.name.sequence == BATCHES - 1, "the position has moved"


def test_batches_wait_only_while_the_receiver_gets_some_otherwise() -> None:
    world = running(LinkWorld())
    assert world.sender is not None
    waits, hold_s = make_batch(2)[0], world.settings.hold_s

    def is_held(since: float, now: float) -> bool:
        assert world.sender is not None
        return world.sender.is_held(waits, since, now)

    now = world.time.now
    assert not is_held(now, now), "the receiver has had nothing otherwise"
    comes_otherwise(world, 1)
    world.time.run_until(now + 1)
    informed_at = world.time.now
    assert is_held(informed_at, informed_at)
    late = now + NEWS_LASTS_S + 1
    assert not is_held(late, late), "no news for a while"
    assert not is_held(informed_at, informed_at + hold_s), "not for longer"
    assert not is_held(informed_at, informed_at), "nor does what comes next, before there is news"


def test_batches_do_not_wait_for_what_another_link_brings() -> None:
    world = running(LinkWorld())
    assert world.sender is not None
    comes_otherwise(world, 1, by_group=False)
    now = world.time.now + 1
    world.time.run_until(now)
    assert world.sender.receiver_has(make_batch(1)[0].name)
    assert not world.sender.is_held(make_batch(2)[0], now, now)


def test_batches_wait_only_if_those_of_their_origin_come_otherwise() -> None:
    world = running(LinkWorld())
    assert world.sender is not None
    comes_otherwise(world, 1)
    world.time.run_until(world.time.now + 1)
    now = world.time.now
    assert world.sender.is_held(make_batch(2)[0], now, now)
    assert not world.sender.is_held(make_batch(2, path=("lima", "paris"))[0], now, now)
    world.comes_otherwise = lambda header: False
    assert not world.sender.is_held(make_batch(2)[0], now, now)


def test_a_receiver_cannot_fill_the_senders_memory_with_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("relay.links.sender.session.MOST_INTERVALS", 10)
    world = running(LinkWorld())
    assert world.sender is not None
    comes_otherwise(world, *range(2, 60, 2))
    world.time.run_until(world.time.now + 10)
    session = world.sender._session
    assert session is not None
    assert session.logged.interval_count() <= 10
    assert world.sender.counters.dropped["bad set of names"] > 0


def test_lost_news_costs_no_more_than_a_batch_sent_twice() -> None:
    world = running(LinkWorld())
    assert world.sender is not None
    receiver_end = world.receiver_end
    assert receiver_end is not None
    send = receiver_end.send
    receiver_end.send = lambda frame: None if frame[1] == 21 else send(frame)  # type: ignore[method-assign]
    comes_otherwise(world, *range(1, BATCHES))
    world.time.run_until(world.time.now + 1)
    for sequence in range(1, BATCHES):
        world.source.append(*make_batch(sequence))
    world.run_until_arrived(10)
    world.check_log()
    assert world.sender.counters.sent == BATCHES


@pytest.mark.parametrize("lost", [1, BATCHES])
def test_what_came_otherwise_and_was_lost_with_the_logs_end_is_sent(lost: int) -> None:
    world = running(LinkWorld())
    comes_otherwise(world, *range(1, BATCHES))
    world.time.run_until(world.time.now + 1)
    for sequence in range(1, BATCHES):
        world.source.append(*make_batch(sequence))
    world.run_until_arrived(10)
    world.time.run_until(world.time.now + 5)
    world.roll_back(lost)
    world.run_until_arrived(60)
    world.check_log()


def test_an_end_of_the_version_before_is_not_informed() -> None:
    world = LinkWorld()
    world.sender_formats = as_before(KNOWN)
    running(world)
    assert world.sender is not None
    comes_otherwise(world, *range(1, BATCHES))
    for sequence in range(1, BATCHES):
        world.source.append(*make_batch(sequence))
    world.run_until_arrived(10)
    world.check_log()
    assert not {"other version", "unknown kind", "malformed"} & set(world.sender.counters.dropped)


def many_destinations() -> bytes:
    """Return names of more series than a session may bring, by their bytes."""
    names = NameSet()
    for number in range(20):
        sites = tuple(f"site-{number}-{site}" for site in range(200))
        names.add(BatchName(Series("paris", bytes(8), "orders", 0, sites), 0))
    return names.encode()


def test_names_that_are_no_set_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.links.sender.session.MAX_WELCOME_BYTES", 10_000)
    world = running(LinkWorld())
    assert world.sender is not None
    session = world.sender._session
    assert session is not None
    too_long = bytes(MAX_HAVE_BYTES + 1)
    for count, names in enumerate((b"\x07garbage", too_long, many_destinations()), 1):
        frame = encode_have(3, Have(session.nonce, session.run, True, names))
        assert isinstance(decode_frame(frame), Have)
        assert world.sender.frame("user-tokyo", frame, world.time.now) == []
        assert world.sender.counters.dropped["bad set of names"] == count
    assert not session.informed_until
