"""Sites of a group: every batch at every site, in order, for few bytes, whatever gets lost."""

from __future__ import annotations

import random

import pytest

from relay.group.datagram import NO_FRAME, FramePiece, GroupMessage, GroupPulse, Nack
from relay.group.publisher import UNKNOWN
from relay.group.settings import GroupSettings
from tests.relay.group.group_world import NAME_BYTES, RATE, GroupWorld, Host

BATCHES = 100
SIZE = 20_000
SITES = [f"site{number:02}" for number in range(16)]
FEW = SITES[:4]
FIRST = FEW[0]


def publish(world: GroupWorld, *, site: str = FIRST, first: int = 0, count: int = BATCHES) -> None:
    """Publish a hundred batches a second, and wait until all has come."""
    for number in range(first, first + count):
        world.publish(site, f"{site}/{number}", SIZE)
        world.run(0.01)
    world.run(3.0)


def names(site: str = FIRST, count: int = BATCHES) -> list[str]:
    return [f"{site}/{number}" for number in range(count)]


def of(host: Host, site: str) -> list[str]:
    """The batches of a site in a log, in its order."""
    return [name for name in host.log.names if name.startswith(f"{site}/")]


@pytest.mark.parametrize(("loss", "most"), [(0.0, 1.001), (0.01, 1.15), (0.05, 1.3)])
def test_all_sites_have_all_batches_in_order_for_few_bytes(loss: float, most: float) -> None:
    world = GroupWorld(*SITES, loss=loss)
    world.run(0.5)
    publish(world)
    for host in world.hosts.values():
        assert host.log.names == names()
        assert host.by_links == 0
    sent = sum(host.sent_bytes for host in world.hosts.values())
    assert sent <= most * BATCHES * (SIZE + 2 * NAME_BYTES)
    nacks = sum(host.nacks for host in world.hosts.values())
    assert nacks <= 4 * BATCHES, "most sites keep quiet: another has asked"


def test_most_losses_are_mended_before_a_site_asks() -> None:
    world = GroupWorld(*FEW, loss=0.05, replayers=(FEW[1], FEW[2]))
    world.run(0.5)
    publish(world, count=200)
    asked = sum(host.nacks for host in world.hosts.values())
    publish(world, first=200, count=200)
    assert all(host.log.names == names(count=400) for host in world.hosts.values())
    assert sum(host.nacks for host in world.hosts.values()) - asked <= 0.3 * 200


def test_a_site_asks_for_a_frame_only_once_the_parity_ahead_of_nacks_has_come() -> None:
    world = GroupWorld(*FEW)
    receiver, stream = world.hosts[FEW[1]].member.receiver, world.hosts[FIRST].own
    receiver.on_pulse(stream, GroupPulse(NO_FRAME, 0, ""), 0.0)
    wait = world.settings.nack_wait_s
    for index in (0, 1, 4):  # of 5
        receiver.on_piece(FramePiece(stream, 0, index, 5, 50, bytes(10)), 0.0)
    receiver.on_piece(FramePiece(stream, 0, 5, 5, 50, bytes(10)), 0.9 * wait)
    assert receiver.tick(1.2 * wait) == []
    assert receiver.tick(1.4 * wait) == [Nack(stream, ((0, 1),))]


@pytest.mark.parametrize("seed", range(4))
def test_where_answerers_lose_pieces_as_well_all_is_mended_within_the_time_of_links(
    seed: int,
) -> None:
    world = GroupWorld(*FEW, loss=0.05, seed=seed, replayers=(FEW[1], FEW[2]))
    world.run(0.5)
    for number in range(100):
        world.publish(FIRST, f"{FIRST}/{number}", 3 * SIZE)
        world.run(0.1)
    world.run(3.0)
    assert all(host.log.names == names() for host in world.hosts.values())
    assert sum(host.by_links for host in world.hosts.values()) == 0


def test_a_site_that_was_deaf_for_a_while_follows_again() -> None:
    world = GroupWorld(*FEW, loss=0.01)
    world.run(0.5)
    publish(world, count=50)
    world.hosts["site03"].is_deaf = True
    publish(world, first=50, count=300)
    assert world.hosts["site03"].by_links == 300
    world.hosts["site03"].is_deaf = False
    publish(world, first=350, count=300)
    assert world.hosts["site03"].log.names == names(count=650)
    assert world.hosts["site03"].by_links <= 300 + 150, "those of the first second or so"
    assert [world.hosts[name].by_links for name in FEW[1:3]] == [0, 0]


def test_where_nothing_comes_through_links_bring_all_and_nobody_asks() -> None:
    world = GroupWorld(*FEW, loss=1.0)
    publish(world)
    assert all(host.log.names == names() for host in world.hosts.values())
    assert all(host.by_links == BATCHES for host in world.hosts.values() if host.name != FIRST)
    assert all(host.nacks == 0 for host in world.hosts.values())


def test_a_publisher_that_begins_anew_is_followed_from_behind_its_last_batch() -> None:
    world = GroupWorld(*FEW)
    publish(world)
    world.hosts[FIRST].is_dead = True
    world.run(1.0)
    world.start(FIRST, before=names()[-1])
    world.run(0.1)
    publish(world, first=BATCHES)
    for host in world.hosts.values():
        assert host.log.names == names(count=2 * BATCHES)
        assert host.by_links == 0


def test_a_new_stream_waits_for_what_links_have_to_bring_before() -> None:
    world = GroupWorld(*FEW)
    publish(world, count=10)
    # Logged, and on no stream: the publisher died before it could send it.
    world.hosts[FIRST].log.names.append(f"{FIRST}/10")
    world.start(FIRST, before=f"{FIRST}/10")
    world.run(0.1)
    for number in range(11, 20):
        world.publish(FIRST, f"{FIRST}/{number}", SIZE)
        world.run(0.01)
    assert all(len(host.log.names) == 10 for host in world.hosts.values() if host.name != FIRST)
    for host in world.hosts.values():
        world.link_brings(host, f"{FIRST}/10")
    world.run(0.5)
    assert all(host.log.names == names(count=20) for host in world.hosts.values())


def test_a_batch_that_is_too_big_comes_by_links_and_all_behind_it_waits() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    publish(world, count=5)
    world.publish(FIRST, f"{FIRST}/5", 600_000)
    for number in range(6, 20):
        world.publish(FIRST, f"{FIRST}/{number}", SIZE)
        world.run(0.01)
    assert all(len(host.log.names) == 5 for host in world.hosts.values() if host.name != FIRST)
    world.run(2.0)
    for host in world.hosts.values():
        assert host.log.names == names(count=20)
        assert host.by_links <= 10 or host.name == FIRST


def test_what_is_above_the_rate_comes_by_links_and_the_group_goes_on_with_what_is_new() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    count = 1000
    for number in range(count):
        world.publish(FIRST, f"{FIRST}/{number}", SIZE)
        world.run(0.004)  # twice the rate
    publish(world, first=count, count=100)
    first, *others = world.hosts.values()
    assert first.counters["above_the_rate"] > count / 4
    assert first.counters["published"] > count / 3
    assert sum(first.counters.values()) == count + 100
    late = world.links_brought[-1]
    assert int(late.partition("/")[2]) < count + 50, "the group brings what comes after the burst"
    for host in others:
        assert host.log.names == names(count=count + 100)
        assert host.nacks == 0, "nothing was lost, and what links bring is not asked for"


def test_a_batch_behind_a_name_that_is_too_long_comes_by_links() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    first = world.hosts[FIRST]
    first.member.publish("x" * 70_000, b"")
    first.member.publish("y", b"")
    assert first.counters == {"published": 1, "too_big": 1}
    pulses: list[GroupPulse] = []

    def notes(sender: str, receiver: str, message: GroupMessage) -> bool:
        if isinstance(message, GroupPulse) and sender == FIRST:
            pulses.append(message)
        return False

    world.is_lost = notes
    world.run(1.0)
    assert pulses[-1].number == 0
    assert pulses[-1].name == UNKNOWN, "a pulse is no larger than other datagrams"


def test_no_nack_is_larger_than_other_datagrams() -> None:
    world = GroupWorld(*FEW, settings=GroupSettings(rate=RATE, piece_bytes=90))
    world.run(0.5)
    publish(world, count=1)
    receiver = world.hosts[FEW[1]].member.receiver
    receiver.on_piece(FramePiece(world.hosts[FIRST].own, 31, 0, 2, 20, bytes(10)), world.now)
    asked = [each.asked for each in receiver.tick(world.now + 1.0) if isinstance(each, Nack)]
    assert [len(each) for each in asked] == [10, 10, 10, 1]


def test_replayers_answer_for_a_publisher_that_is_gone() -> None:
    world = GroupWorld(*FEW, replayers=("site01", "site02"))
    world.run(0.5)
    publish(world, count=10)

    def loses(sender: str, receiver: str, message: GroupMessage) -> bool:
        lost = receiver == "site03" and sender == FIRST and isinstance(message, FramePiece)
        return lost and message.piece == 3  # type: ignore[union-attr]

    world.is_lost = loses
    world.publish(FIRST, f"{FIRST}/10", SIZE)
    world.run(0.0015)
    world.hosts[FIRST].is_dead = True
    answered = [world.hosts[name].sent_bytes for name in FEW]
    world.publish("site02", "site02/0", SIZE)
    # Nobody says that the stream has come so far, but for the first of the pieces.
    world.run(0.2)
    assert f"{FIRST}/10" in world.hosts["site03"].log.names
    grown = [
        world.hosts[name].sent_bytes - before for name, before in zip(FEW, answered, strict=True)
    ]
    assert grown[1] > 0, "the first by rank"
    assert grown[3] == 0


def test_one_replayer_answers_and_the_others_hear_it() -> None:
    world = GroupWorld(*FEW, replayers=("site01", "site02"))
    world.run(0.5)

    def loses(sender: str, receiver: str, message: GroupMessage) -> bool:
        return receiver == "site03" and isinstance(message, FramePiece) and message.piece in (2, 5)

    world.is_lost = loses
    publish(world, count=10)
    assert world.hosts["site03"].log.names == names(count=10)
    repaired = {name: world.hosts[name].sent_bytes for name in FEW[1:]}
    assert repaired["site01"] > 0
    assert repaired["site02"] == repaired["site03"] == 0
    own = 10 * len(range(0, SIZE + 64, world.settings.piece_bytes))
    ahead = own / 4
    assert world.hosts[FIRST].sent_bytes <= (own + ahead) * world.settings.piece_bytes


def test_sites_far_apart_mend_what_is_lost_and_neither_slow_down_nor_need_links() -> None:
    world = GroupWorld(*SITES[:8], loss=0.05, replayers=(SITES[1], SITES[2]), delay_s=0.05)
    world.run(0.5)
    full = world.hosts[FIRST].member.rate
    for number in range(20):
        world.publish(FIRST, f"{FIRST}/{number}", 3 * SIZE)
        world.run(0.2)
    world.run(3.0)
    assert sum(host.by_links for host in world.hosts.values()) == 0
    assert world.hosts[FIRST].member.rate == full


def test_a_site_behind_a_narrow_line_slows_the_publisher_until_all_is_well() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    full = world.hosts[FIRST].member.rate

    def loses(sender: str, receiver: str, message: GroupMessage) -> bool:
        return (
            receiver == "site03" and not isinstance(message, Nack) and world.chance.random() < 0.4
        )

    world.is_lost = loses
    for number in range(300):
        world.publish(FIRST, f"{FIRST}/{number}", SIZE)
        world.run(0.01)
    assert world.hosts[FIRST].member.rate <= full / 2
    world.is_lost = lambda *datagram: False
    world.run(30.0)
    publish(world, first=300, count=1)
    assert all(host.log.names == names(count=301) for host in world.hosts.values())
    assert world.hosts[FIRST].member.rate == full


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_site_has_each_batch_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    loss = chance.choice((0.0, 0.02, 0.1))
    world = GroupWorld(*FEW, loss=loss, seed=seed, replayers=("site01",) * (seed % 2))
    sent = dict.fromkeys(FEW[:2], 0)
    for _ in range(120):
        site = chance.choice(list(sent))
        what = chance.random()
        if what < 0.03:
            host = world.hosts[chance.choice(FEW)]
            host.is_deaf = not host.is_deaf
        elif what < 0.05:
            world.start(site, before=of(world.hosts[site], site)[-1] if sent[site] else "")
        else:
            size = chance.choice((10, 3_000, 20_000, 20_000, 400_000))
            world.publish(site, f"{site}/{sent[site]}", size)
            sent[site] += 1
        world.run(chance.choice((0.0, 0.005, 0.02, 0.2)))
    world.run(10.0)
    for host in world.hosts.values():
        for site, count in sent.items():
            assert of(host, site) == names(site, count)


def test_a_site_that_waits_for_a_frame_which_a_link_brings_asks_for_it_no_more() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    publish(world, count=5)
    host = world.hosts[FEW[1]]
    world.is_lost = lambda sender, receiver, message: (
        receiver == host.name and isinstance(message, FramePiece) and message.number == 5
    )
    world.publish(FIRST, f"{FIRST}/5", SIZE)
    world.run(0.02)
    world.link_brings(host, f"{FIRST}/5")
    world.run(0.1)
    nacks = host.nacks
    world.publish(FIRST, f"{FIRST}/6", SIZE)
    world.run(0.5)
    assert of(host, FIRST) == names(count=7)
    assert host.by_links == 1
    assert host.nacks <= nacks + 1


def test_a_frame_that_is_lost_after_a_rest_is_mended_at_once() -> None:
    world = GroupWorld(*FEW)
    publish(world, count=1)
    world.run(20.0)
    host = world.hosts[FEW[1]]
    lost_until = world.now + 0.04
    world.is_lost = lambda sender, receiver, message: (
        receiver == host.name and isinstance(message, FramePiece) and world.now < lost_until
    )
    world.publish(FIRST, f"{FIRST}/1", SIZE)
    world.run(0.3)
    assert of(host, FIRST) == names(count=2)
    assert host.by_links == 0


def test_a_site_whose_log_is_away_asks_for_nothing_until_it_is_there() -> None:
    world = GroupWorld(*FEW, replayers=("site01",))
    world.run(0.5)
    publish(world, count=10)
    away = world.hosts["site03"]
    away.member.receiver.log_changed(is_there=False)
    asked = away.nacks
    publish(world, first=10, count=40)
    assert away.nacks == asked
    assert away.by_links == 40
    away.member.receiver.log_changed(is_there=True)
    publish(world, first=50, count=40)
    assert away.log.names == names(count=90)
    assert away.by_links == 40


def test_a_site_that_gets_no_answers_any_more_asks_a_few_times_only() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    publish(world, count=10)
    usual, deaf = world.is_lost, world.hosts["site03"]

    def loses(sender: str, receiver: str, message: GroupMessage) -> bool:
        comes = isinstance(message, FramePiece) and message.piece < 10
        return receiver == deaf.name and not comes

    world.is_lost, asked = loses, deaf.nacks
    publish(world, first=10, count=2)
    world.run(30.0)
    assert deaf.by_links == 2
    assert 0 < deaf.nacks - asked <= 2 * world.settings.unanswered
    world.is_lost = usual
    publish(world, first=12, count=40)
    assert deaf.log.names == names(count=52)
    assert deaf.by_links == 2


def test_a_site_that_follows_again_amid_a_frame_waits_for_the_rest_of_the_frame() -> None:
    world = GroupWorld(*FEW)
    world.run(0.5)
    publish(world, count=10)
    host, asked = world.hosts["site03"], sum(each.nacks for each in world.hosts.values())
    world.publish(FIRST, f"{FIRST}/10", 200_000)
    world.run(0.02)
    host.member.receiver.log_changed(is_there=True)
    world.run(0.5)
    assert host.log.names == names(count=11)
    assert host.by_links == 0
    assert sum(each.nacks for each in world.hosts.values()) == asked
