"""Links between real log writers: logs that lose their tails, strangers, gaps, and kills."""

from __future__ import annotations

import asyncio

import pytest

from relay.links.metrics import LinkState
from relay.log.open_gap import just_before
from relay.log.run import LogSettings
from tests.log_batches import batch
from tests.relay.link_chain import Chain, FolderLinkMemory, LoopClock, Site
from tests.relay.link_logs import make_batch
from tests.virtual_time import in_virtual_time, let_pass

SELDOM = LogSettings(check_every_s=1000)
"""Nothing is read back for a long time: all that is new is in memory only."""


def has_all(site: Site, count: int) -> bool:
    return set(site.numbers) >= set(range(count))


async def with_the_last_ten_of_thirty() -> Chain:
    """Paris alone has run, and has ended; retention ate all before the last ten."""
    chain = Chain(7)
    stream = chain.paris.world.stream
    chain.paris.start()
    await chain.publish(range(30))
    await chain.paris.end()
    stream.truncate_head(stream.records[20].offset)
    return chain


async def lose_what_tokyo_lacks(chain: Chain) -> None:
    """Retention at Paris eats ten messages, 10 to 19, before Tokyo has them; both run again."""
    chain.start()
    await chain.publish(range(10))
    await chain.until(lambda: has_all(chain.sydney, 10))
    await chain.until_kept(chain.paris, 9)
    await chain.tokyo.end()
    await chain.publish(range(10, 30))
    await chain.paris.end()
    stream = chain.paris.world.stream
    stream.truncate_head(stream.records[20].offset)
    chain.paris.start()
    chain.tokyo.start()


@in_virtual_time
async def test_all_goes_down_the_chain_once() -> None:
    chain = Chain(1)
    chain.start()
    await chain.publish(range(50))
    await chain.until(lambda: has_all(chain.sydney, 50))
    assert [site.numbers for site in chain.sites] == [list(range(50))] * 3
    await chain.end()


@pytest.mark.parametrize("down", [False, True])
def test_a_tail_lost_comes_again_and_goes_on_to_the_sites_behind(down: bool) -> None:
    @in_virtual_time
    async def trial() -> None:
        chain = Chain(2)
        chain.start()
        await chain.publish(range(50))
        await chain.until(lambda: has_all(chain.sydney, 50))
        chain.meetings[1].cut_sender = True
        await chain.publish(range(50, 80))
        await chain.until(lambda: has_all(chain.tokyo, 80))
        await chain.until_kept(chain.paris, 79)
        if down:
            await chain.tokyo.kill()
        # What sydney has not had yet, and some that it has.
        chain.tokyo.world.stream.lose_tail(40)
        if down:
            chain.tokyo.start()
        chain.meetings[1].cut_sender = False
        chain.meetings[1].close_all("the line is back")
        await chain.until(lambda: has_all(chain.tokyo, 80) and has_all(chain.sydney, 80))
        assert chain.tokyo.numbers == list(range(80))
        assert chain.sydney.numbers == list(range(80))
        await chain.end()

    trial()


@in_virtual_time
async def test_a_strangers_batch_among_hot_ones_is_not_behind_the_position_after_a_kill() -> None:
    # The stranger's stands before 7 in paris's log; tokyo acknowledges 7 before paris finds it.
    chain = Chain(3)
    chain.start()
    await chain.publish(range(5))
    await chain.until(lambda: has_all(chain.tokyo, 5))
    await chain.until_kept(chain.paris, 4)
    await chain.publish([5])
    chain.paris.world.stream.append_alien(batch(99)[1])
    await chain.publish([6, 7])
    await chain.until(lambda: has_all(chain.tokyo, 8))
    await chain.paris.kill()
    chain.paris.start()
    await chain.until(lambda: 99 in chain.sydney.numbers)
    await chain.end()


@in_virtual_time
async def test_a_stranger_found_while_its_link_runs_is_sent_and_the_position_waits_for_it() -> None:
    chain = Chain(4)
    chain.start()
    await chain.publish(range(5))
    await chain.until(lambda: has_all(chain.tokyo, 5))
    await chain.publish([5])
    chain.paris.world.stream.append_alien(batch(99)[1])
    await chain.publish([6, 7])
    await chain.until(lambda: 99 in chain.sydney.numbers)
    assert chain.paris.sender is not None
    ends = chain.paris.sender.machine.counters.ends
    assert sum(ends.values()) <= 1
    await chain.end()


@in_virtual_time
async def test_an_ack_that_comes_after_a_stranger_was_found_moves_no_position_past_it() -> None:
    # 6 and 7 are with tokyo, their acks are not back; the stranger's, before them, gets lost.
    chain = Chain(9)
    chain.start()
    await chain.publish(range(5))
    await chain.until(lambda: has_all(chain.tokyo, 5))
    await chain.until_kept(chain.paris, 4)
    meeting = chain.meetings[0]
    meeting.tamper_acks = lambda frame: ()
    await chain.publish([5])  # ends the waiting for what comes at idle: a second without a look
    chain.paris.world.stream.append_alien(batch(99)[1])
    await chain.publish([6, 7])
    await chain.until(lambda: has_all(chain.tokyo, 8))
    meeting.tamper_data = lambda frame: ()
    writer = chain.paris.writer
    assert writer is not None
    await chain.until(lambda: (writer.checked.name.sequence if writer.checked else None) == 7)
    assert writer.counts.readers_sent_back > 0
    heard: list[bytes] = []

    def hear(frame: bytes) -> tuple[bytes, ...]:
        heard.append(frame)
        return (frame,)

    meeting.tamper_acks = hear
    await chain.until(lambda: len(heard) >= 2)  # the first of them is with paris by then
    await chain.paris.kill()
    meeting.tamper_data = lambda frame: (frame,)
    chain.paris.start()
    await chain.until(lambda: 99 in chain.tokyo.numbers)
    await chain.end()


@in_virtual_time
async def test_a_new_connection_to_the_own_log_does_not_end_the_session() -> None:
    chain = Chain(5)
    chain.start()
    await chain.publish(range(5))
    await chain.until(lambda: has_all(chain.tokyo, 5))
    await chain.until_kept(chain.paris, 4)
    chain.paris.world.stream.break_connections()
    await chain.publish(range(5, 10))
    await chain.until(lambda: has_all(chain.tokyo, 10))
    assert chain.paris.sender is not None
    assert chain.paris.sender.machine.counters.sessions == 1
    assert chain.paris.sender.machine.counters.resent == 0
    await chain.end()


@in_virtual_time
async def test_a_log_made_anew_is_gone_through_from_its_start() -> None:
    chain = Chain(6)
    chain.start()
    await chain.publish(range(10))
    await chain.until(lambda: has_all(chain.sydney, 10))
    await chain.until_kept(chain.paris, 9)
    chain.paris.world.stream.create()
    await chain.publish(range(8, 20))
    await chain.until(lambda: has_all(chain.sydney, 20))
    assert chain.sydney.numbers == list(range(20))
    assert not chain.paris.gaps
    await chain.end()


@in_virtual_time
async def test_a_link_whose_backlog_retention_ate_stops_and_says_gap() -> None:
    chain = Chain(7)
    await lose_what_tokyo_lacks(chain)
    paris = chain.paris
    await chain.until(lambda: bool(paris.gaps))
    assert paris.sender is not None
    await chain.until(lambda: paris.sender.machine.state is LinkState.DOWN)  # type: ignore[union-attr]
    assert "gap" in paris.sender.machine.reason
    assert len(paris.gaps) == 1
    await let_pass(100)
    assert chain.tokyo.numbers == list(range(10))  # nothing goes on silently
    await chain.end()


@in_virtual_time
async def test_a_link_that_said_gap_goes_on_with_what_there_is_once_a_person_says_so() -> None:
    chain = Chain(7)
    await lose_what_tokyo_lacks(chain)
    await chain.until(lambda: bool(chain.paris.gaps))
    await chain.paris.end()
    memory = FolderLinkMemory(chain.paris.folder)
    kept, (gap,) = memory.load(), chain.paris.gaps
    assert kept is not None
    memory.save(kept.behind(just_before(gap.first), LoopClock().now()), [])
    chain.paris.start()
    await chain.publish(range(30, 35))
    await chain.until(lambda: 34 in chain.sydney.numbers)
    assert chain.sydney.numbers == [*range(10), *range(20, 35)]
    assert len(chain.paris.gaps) == 1
    await chain.end()


@in_virtual_time
async def test_what_retention_eats_before_a_neighbour_was_ever_there_is_a_gap_as_well() -> None:
    chain = await with_the_last_ten_of_thirty()
    chain.start()
    await chain.until(lambda: bool(chain.paris.gaps))
    assert chain.tokyo.numbers == []
    await chain.end()


@in_virtual_time
async def test_what_a_log_had_lost_before_a_link_began_is_no_gap_of_it() -> None:
    chain = await with_the_last_ten_of_thirty()
    chain.paris.folder.began = None
    chain.start()
    await chain.until(lambda: chain.tokyo.numbers == list(range(20, 30)))
    assert not chain.paris.gaps
    await chain.end()


@in_virtual_time
async def test_a_link_that_passes_over_nearly_all_keeps_up_with_its_log_and_says_no_gap() -> None:
    chain = Chain(10)
    chain.start()
    await chain.publish(range(3))
    await chain.until(lambda: has_all(chain.sydney, 3))
    await chain.until_kept(chain.paris, 2)
    paris = chain.paris
    assert paris.writer is not None
    for number in range(500):  # for nobody but paris itself
        mine = make_batch(number, incarnation=b"for-none", destinations=("paris",))
        await paris.writer.append(*mine)
        await let_pass(0.1)
    await chain.until_kept(paris, 499)
    await paris.kill()
    stream = paris.world.stream
    stream.truncate_head(stream.records[-20].offset)
    paris.start()
    await chain.publish([3])
    await chain.until(lambda: has_all(chain.sydney, 4))
    assert not paris.gaps
    assert chain.sydney.numbers == [0, 1, 2, 3]
    await chain.end()


@in_virtual_time
async def test_lag_is_what_the_receiver_lacks_and_right_after_a_restart_too() -> None:
    chain = Chain(8)
    chain.start()
    await chain.publish(range(10))
    await chain.until(lambda: has_all(chain.tokyo, 10))
    assert chain.paris.sender is not None
    await chain.until_kept(chain.paris, 9)
    assert chain.paris.sender.lag.messages == 0
    await chain.tokyo.end()
    await chain.publish(range(10, 30))
    assert chain.paris.sender.lag.messages == 40
    await chain.paris.kill()
    chain.paris.start()
    assert chain.paris.writer is not None
    await chain.paris.writer.running()
    assert chain.paris.sender.lag.messages == 40
    chain.tokyo.start()
    await chain.until(lambda: has_all(chain.tokyo, 30))
    await chain.until_kept(chain.paris, 29)
    assert chain.paris.sender.lag.messages == 0
    await chain.end()


class Trial:
    """Faults by chance at every site of the chain, until all has arrived everywhere."""

    def __init__(self, seed: int) -> None:
        self.chain = Chain(seed, LogSettings(check_every_s=0.3, hot_bytes=30_000))
        self.random = self.chain.random
        self.strangers = 1000

    async def strike(self) -> None:
        site = self.random.choice(self.chain.sites)
        stream = site.world.stream
        kind = self.random.choice(
            [
                "tail",
                "tail",
                "break",
                "unconfirmed",
                "stranger",
                "kill",
                "cut",
                "end",
                "held",
                "anew",
            ]
        )
        if kind == "tail":
            stream.lose_tail(self.random.choice([1, 3, 20]))
        elif kind == "anew":
            stream.create()
        elif kind == "break":
            stream.break_connections()
        elif kind == "unconfirmed":
            stream.break_after_storing()
        elif kind == "held":
            stream.hold_next_appends()
            await asyncio.sleep(self.random.random())
            stream.break_connections()
            stream.release_held()
        elif kind == "stranger":
            self.strangers += 1
            stream.append_alien(batch(self.strangers, origin=site.name)[1])
        elif kind == "cut":
            self.random.choice(self.chain.meetings).close_all("cut")
        elif kind == "kill":
            await site.kill()
            if self.random.random() < 0.5:
                stream.lose_tail(self.random.choice([1, 5, 30]))
            await asyncio.sleep(self.random.random() * 5)
            site.start()
        elif kind == "end":
            await site.end()
            await asyncio.sleep(self.random.random() * 5)
            site.start()

    async def run(self) -> None:
        chain = self.chain
        chain.start()
        publishing = asyncio.create_task(self.publish())
        for _ in range(30):
            await asyncio.sleep(self.random.random() * self.random.choice([0.2, 1, 8]))
            await self.strike()
        for site in chain.sites:
            site.world.stream.break_connections()
        await publishing
        await chain.until(self.is_done, 3000)
        await chain.end()

    async def publish(self) -> None:
        for number in range(0, 200, 5):
            await self.chain.publish(range(number, number + 5))
            await asyncio.sleep(self.random.random() * 2)
        # What paris's log lost and never sent on is gone with it; its packer would have it again.

    def is_done(self) -> bool:
        """Each has what the one before it has."""
        paris, tokyo, sydney = (set(site.names) for site in self.chain.sites)
        return paris <= tokyo <= sydney


def seeds(count: int) -> list[object]:
    """A few for every run, all of them for the long one."""
    return [
        seed if seed < 8 else pytest.param(seed, marks=pytest.mark.long) for seed in range(count)
    ]


@pytest.mark.parametrize("seed", seeds(150))
def test_each_site_gets_all_that_the_one_before_it_has_whatever_the_logs_do(seed: int) -> None:
    @in_virtual_time
    async def trial() -> None:
        await Trial(seed).run()

    trial()
