"""Who may send how much: the rate is kept, lanes have their parts, nobody is starved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from federation.lanes import Lane
from relay.links.budget import Budget, LinkLane, Rates

LANES = (Lane("urgent", 1, 16), Lane("normal", 0, 4), Lane("bulk", 2, 1))
URGENT, NORMAL, BULK = (LinkLane("a-b", lane.name) for lane in LANES)
RATES = (2_000, 8_000, 187_500, 2_500_000, 60_000_000)


class Senders:
    """Strands that send what they have as soon as they may; time passes by what the budget says."""

    def __init__(self, rates: Rates, late_s: float = 0.0) -> None:
        self.budget = Budget()
        self.budget.change(rates, 0.0)
        self.now = 0.0
        self.sent: Counter[LinkLane] = Counter()
        self.log: list[tuple[float, int]] = []
        self._waiting: dict[LinkLane, int] = {}
        self._late_s = late_s
        self._chance = random.Random(1)

    def put(self, strand: LinkLane, nbytes: int) -> None:
        if nbytes and not self._waiting.get(strand):
            self.budget.wants(strand, self.now)
        self._waiting[strand] = self._waiting.get(strand, 0) + nbytes

    def is_empty(self, strand: LinkLane) -> bool:
        return not self._waiting.get(strand)

    def run(self, until: float) -> None:
        """Timers come up to `late_s` after they are due."""
        while True:
            while (turn := self.budget.next(self.now)) is not None:
                nbytes = min(turn.most, self._waiting[turn.link_lane])
                self._waiting[turn.link_lane] -= nbytes
                if not self._waiting[turn.link_lane]:
                    self.budget.wants_no_more(turn.link_lane, self.now)
                self.budget.spent(turn.link_lane, nbytes, self.now)
                self.sent[turn.link_lane] += nbytes
                self.log.append((self.now, nbytes))
            due = self.budget.due(self.now)
            if due is None or due > until:
                self.now = until
                return
            assert due > self.now
            self.now = due + self._chance.uniform(0.0, self._late_s)

    def all_sent(self) -> int:
        return self.sent.total()


def limited(rate: int, site: int | None = None, lanes: tuple[Lane, ...] = LANES) -> Rates:
    return Rates(site, {"a-b": rate}, lanes)


def shares(sent: Mapping[LinkLane, int], *of: LinkLane) -> list[float]:
    whole = sum(sent[one] for one in of)
    return [sent[one] / whole for one in of]


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("late_s", [0.0, 0.03])
def test_whoever_has_enough_to_send_keeps_the_rate_over_any_ten_seconds(
    rate: int, late_s: float
) -> None:
    senders = Senders(limited(rate), late_s)
    for strand in (URGENT, NORMAL, BULK):
        senders.put(strand, 100 * rate)
    senders.run(60.0)
    for begins in range(0, 50, 5):
        over = sum(nbytes for at, nbytes in senders.log if begins <= at < begins + 10)
        assert over == pytest.approx(10 * rate, rel=0.05)
    assert senders.all_sent() == pytest.approx(60 * rate, rel=0.02)


@pytest.mark.parametrize("rate", RATES)
def test_one_lane_alone_has_all_of_the_rate(rate: int) -> None:
    senders = Senders(limited(rate))
    senders.put(BULK, 100 * rate)
    senders.run(30.0)
    assert senders.sent[BULK] == pytest.approx(30 * rate, rel=0.02)


@pytest.mark.parametrize("rate", RATES)
def test_lanes_that_all_have_enough_share_by_weight(rate: int) -> None:
    senders = Senders(limited(rate))
    for strand in (URGENT, NORMAL, BULK):
        senders.put(strand, 100 * rate)
    senders.run(60.0)
    assert shares(senders.sent, URGENT, NORMAL, BULK) == pytest.approx(
        [16 / 21, 4 / 21, 1 / 21], rel=0.15
    )


@pytest.mark.parametrize("rate", RATES)
def test_what_a_lane_leaves_the_others_share_by_weight(rate: int) -> None:
    senders = Senders(limited(rate))
    senders.put(NORMAL, 100 * rate)
    senders.put(BULK, 100 * rate)
    senders.run(60.0)
    assert shares(senders.sent, NORMAL, BULK) == pytest.approx([4 / 5, 1 / 5], rel=0.1)
    assert senders.all_sent() == pytest.approx(60 * rate, rel=0.02)


@pytest.mark.parametrize("rate", RATES)
def test_an_urgent_message_waits_for_one_piece_and_not_for_what_was_borrowed(rate: int) -> None:
    senders = Senders(limited(rate))
    senders.put(BULK, 1000 * rate)
    waited = []
    for second in range(5, 60):
        senders.run(float(second))
        senders.put(URGENT, 200)
        senders.run(second + 0.99)
        waited.append(next(at for at, n in senders.log if at >= second and n == 200) - second)
    assert max(waited) < 0.6
    # ... while the last lane hardly notices.
    assert senders.sent[BULK] == pytest.approx(60 * rate, rel=0.15)


def test_a_lane_that_comes_back_has_not_saved_up_what_it_left_to_others() -> None:
    senders = Senders(limited(100_000))
    senders.put(BULK, 100_000_000)
    senders.run(600.0)
    before = senders.sent[BULK]
    senders.put(URGENT, 100_000_000)
    senders.run(660.0)
    assert senders.sent[BULK] - before == pytest.approx(60 * 100_000 / 17, rel=0.2)


def test_after_a_rest_no_more_goes_at_once_than_a_piece_or_two() -> None:
    senders = Senders(limited(100_000))
    senders.put(NORMAL, 10)
    senders.run(1000.0)
    for strand in (URGENT, NORMAL, BULK):
        senders.put(strand, 1_000_000)
    begins = senders.all_sent()
    senders.run(1000.0)
    assert senders.all_sent() - begins < 20_000


def test_a_process_that_stood_still_makes_up_for_a_moment_of_it_only() -> None:
    senders = Senders(limited(100_000))
    senders.put(BULK, 10_000_000)
    senders.run(10.0)
    before = senders.all_sent()
    senders.now = 30.0
    senders.run(30.0)
    assert senders.all_sent() - before < 50_000


def test_all_links_of_a_site_together_keep_its_rate_and_each_its_own() -> None:
    thin, wide = LinkLane("a-b", "bulk"), LinkLane("a-c", "bulk")
    senders = Senders(Rates(100_000, {"a-b": 20_000}, LANES))
    for strand in (thin, wide):
        senders.put(strand, 10_000_000)
    senders.run(60.0)
    assert senders.sent[thin] == pytest.approx(60 * 20_000, rel=0.03)
    assert senders.sent[wide] == pytest.approx(60 * 80_000, rel=0.03)


def test_what_is_urgent_on_one_link_passes_what_another_has_borrowed_of_the_sites_rate() -> None:
    senders = Senders(Rates(8_000, {}, LANES))
    senders.put(LinkLane("a-c", "bulk"), 10_000_000)
    senders.run(10.0)
    senders.put(URGENT, 400)
    senders.run(10.4)
    assert senders.is_empty(URGENT)


def test_a_lane_with_a_backlog_counts_as_the_last_until_it_has_caught_up_but_not_the_first() -> (
    None
):
    senders = Senders(limited(100_000))
    for strand in (NORMAL, BULK):
        senders.put(strand, 100_000_000)
    senders.budget.is_behind(NORMAL, True)
    senders.run(60.0)
    assert shares(senders.sent, NORMAL, BULK) == pytest.approx([1 / 2, 1 / 2], rel=0.1)
    before = senders.sent.copy()
    senders.budget.is_behind(NORMAL, False)
    senders.run(120.0)
    assert shares(senders.sent - before, NORMAL, BULK) == pytest.approx([4 / 5, 1 / 5], rel=0.1)
    senders.put(URGENT, 100_000_000)
    before = senders.sent.copy()
    senders.budget.is_behind(URGENT, True)
    senders.run(180.0)
    assert shares(senders.sent - before, URGENT, BULK)[0] > 0.9


def test_another_rate_holds_from_the_moment_it_is_told() -> None:
    senders = Senders(limited(10_000))
    senders.put(BULK, 1_000_000_000)
    senders.run(20.0)
    assert senders.all_sent() == pytest.approx(200_000, rel=0.05)
    senders.budget.change(limited(1_000_000), senders.now)
    senders.run(30.0)
    assert senders.all_sent() == pytest.approx(200_000 + 10_000_000, rel=0.05)
    before = senders.all_sent()
    senders.budget.change(limited(10_000), senders.now)
    senders.run(50.0)
    assert senders.all_sent() - before == pytest.approx(200_000, rel=0.3)


def test_without_a_rate_nobody_has_to_ask() -> None:
    budget = Budget()
    budget.change(Rates(None, {"a-b": None}, LANES), 0.0)
    assert not budget.is_limited("a-b")
    assert budget.window("a-b") is None
    budget.change(Rates(None, {"a-b": 8_000}), 0.0)
    assert budget.is_limited("a-b")
    assert not budget.is_limited("a-c")
    assert budget.window("a-b") == 64 * 1024
    budget.change(Rates(1_000_000, {"a-b": 8_000_000}), 0.0)
    assert budget.rate("a-b") == 1_000_000
    assert budget.window("a-c") == 4_000_000


def test_what_waits_for_nothing_is_never_due() -> None:
    budget = Budget()
    budget.change(limited(8_000), 0.0)
    assert budget.next(0.0) is None
    assert budget.due(0.0) is None
    budget.wants(BULK, 0.0)
    assert budget.next(0.0) is not None
    budget.forget(BULK, 0.0)
    assert budget.next(0.0) is None
