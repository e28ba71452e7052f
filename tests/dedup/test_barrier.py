"""The barrier: each identity once, other content never suppressed, nothing forgotten too early."""

from __future__ import annotations

import random

import pytest

from dedup.barrier import Barrier, BarrierMisuse, Judgement, Verdict
from dedup.generations import GENERATIONS, MAX_AGEING_MS, is_beyond_window
from dedup.keys import place_prefix, places_of, second_key
from dedup.memory_store import MemoryStore
from dedup.store import Changes

WINDOW_MS = 10 * MAX_AGEING_MS
NEW, CONFLICT, DUPLICATE = Verdict.NEW, Verdict.CONFLICT, Verdict.DUPLICATE
REPLAY, TWIN, CLAIMED = Verdict.REPLAY, Verdict.TWIN, Verdict.CLAIMED


def key(name: str) -> bytes:
    return b"scope..." + name.encode().ljust(16)


def content(name: str) -> bytes:
    return name.encode().ljust(16)


class Site:
    """A barrier, and short ways to use it. A message is "identity" or "identity=content"."""

    def __init__(self) -> None:
        self.store = MemoryStore(["meta", *GENERATIONS])
        self.barrier = Barrier(self.store, WINDOW_MS, meta_table="meta")

    def judge(self, flow: str, *messages: str, batch: str = "batch") -> Judgement:
        parts = [(*message.split("="), "same")[:2] for message in messages]
        return self.barrier.judge(
            flow,
            [key(identity) for identity, _ in parts],
            [content(text) for _, text in parts],
            places_of(place_prefix(batch.encode()), 0, len(parts)),
        )

    def commit(
        self, judgement: Judgement, begin: int = 0, end: int | None = None, *undelivered: int
    ) -> None:
        changes = Changes()
        self.barrier.commit(judgement, changes, begin, end, undelivered=frozenset(undelivered))
        self.store.write(changes)

    def deliver(self, flow: str, *messages: str, batch: str = "batch") -> list[Verdict]:
        judgement = self.judge(flow, *messages, batch=batch)
        self.commit(judgement)
        return judgement.verdicts

    def restart(self) -> None:
        self.store = self.store.crash()
        self.barrier = Barrier(self.store, WINDOW_MS, meta_table="meta")


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_second_copy_from_another_place_is_a_duplicate(site: Site) -> None:
    assert site.deliver("f", "a", "b") == [NEW, NEW]
    assert site.deliver("f", "b", "c", batch="other") == [DUPLICATE, NEW]
    assert site.deliver("g", "a", batch="third") == [DUPLICATE]


def test_the_same_place_again_is_a_replay_and_no_duplicate(site: Site) -> None:
    site.deliver("f", "a", "b")
    site.restart()
    assert site.judge("f", "a", "b", "c").verdicts == [REPLAY, REPLAY, NEW]


def test_what_was_claimed_and_not_committed_is_new_after_a_restart(site: Site) -> None:
    site.judge("f", "a")
    site.restart()
    assert site.deliver("f", "a") == [NEW]


def test_a_copy_within_one_batch_is_the_twin_of_the_first(site: Site) -> None:
    judgement = site.judge("f", "a", "b", "a", "a")
    assert judgement.verdicts == [NEW, NEW, TWIN, TWIN]
    assert judgement.twins == {2: 0, 3: 0}
    site.commit(judgement)
    assert site.deliver("f", "a", "b", batch="other") == [DUPLICATE, DUPLICATE]


def test_a_twin_of_an_undelivered_message_is_new_when_judged_again(site: Site) -> None:
    judgement = site.judge("f", "a", "a", "b")
    site.commit(judgement, 0, 1, 0)
    site.barrier.release(judgement, 1)
    assert site.judge("f", "a", "b").verdicts == [NEW, NEW]


def test_a_copy_that_another_flow_is_publishing_waits_for_its_outcome(site: Site) -> None:
    first = site.judge("f", "a")
    second = site.judge("g", "b", "a", "c", batch="other")
    assert second.verdicts == [NEW, CLAIMED]
    called: list[str] = []
    site.barrier.when_released(second, lambda: called.append("now"))
    assert not called
    site.commit(first)
    assert called == ["now"]
    assert site.judge("g", "a", "c", batch="other").verdicts == [DUPLICATE, NEW]


def test_a_released_claim_lets_the_other_flow_deliver(site: Site) -> None:
    first = site.judge("f", "a")
    second = site.judge("g", "a")
    called: list[str] = []
    site.barrier.when_released(second, lambda: called.append("now"))
    site.barrier.release(first)
    assert called == ["now"]
    assert site.judge("g", "a").verdicts == [NEW]


def test_waiting_for_a_claim_that_has_ended_calls_back_at_once(site: Site) -> None:
    first = site.judge("f", "a")
    second = site.judge("g", "a")
    site.commit(first)
    called: list[str] = []
    site.barrier.when_released(second, lambda: called.append("now"))
    assert called == ["now"]
    with pytest.raises(BarrierMisuse):
        site.barrier.when_released(first, lambda: None)


def test_a_waiting_flow_claims_nothing_behind_what_it_waits_for(site: Site) -> None:
    site.judge("c", "k2")
    waiting = site.judge("a", "k2", "k3")
    assert waiting.verdicts == [CLAIMED]
    assert site.judge("b", "k3").verdicts == [NEW]


def test_other_content_is_delivered_as_a_conflict_and_its_own_copy_is_a_duplicate(
    site: Site,
) -> None:
    assert site.deliver("f", "a=one", batch="1") == [NEW]
    assert site.deliver("f", "a=two", batch="2") == [CONFLICT]
    assert site.deliver("f", "a=two", batch="3") == [DUPLICATE]
    assert site.deliver("f", "a=one", batch="4") == [DUPLICATE]
    assert site.deliver("f", "a=three", batch="5") == [CONFLICT]
    site.restart()
    assert site.deliver("f", "a=two", batch="2") == [REPLAY]


def test_a_conflict_within_one_batch_is_seen_and_so_is_its_twin(site: Site) -> None:
    judgement = site.judge("f", "a=one", "a=two", "a=two", "a=one")
    assert judgement.verdicts == [NEW, CONFLICT, TWIN, TWIN]
    assert judgement.twins == {2: 1, 3: 0}
    site.commit(judgement)
    assert site.deliver("g", "a=one", "a=two", batch="2") == [DUPLICATE, DUPLICATE]


def test_a_conflict_with_what_another_flow_is_publishing_waits(site: Site) -> None:
    first = site.judge("f", "a=one")
    assert site.judge("g", "a=two").verdicts == [CLAIMED]
    site.commit(first)
    second = site.judge("g", "a=two")
    assert second.verdicts == [CONFLICT]
    third = site.judge("h", "a=two")
    assert third.verdicts == [CLAIMED]
    called: list[str] = []
    site.barrier.when_released(third, lambda: called.append("now"))
    site.commit(second)
    assert called == ["now"]
    assert site.judge("h", "a=two", batch="3").verdicts == [DUPLICATE]


def test_a_conflict_whose_first_was_not_delivered_stops_its_own_copies(site: Site) -> None:
    judgement = site.judge("f", "a=one", "a=two")
    site.commit(judgement, 0, None, 0)
    assert site.deliver("f", "a=two", batch="2") == [DUPLICATE]
    assert site.deliver("f", "a=one", batch="3") == [CONFLICT]


def test_a_conflict_committed_before_its_first_comes_to_nothing_stops_its_own_copies(
    site: Site,
) -> None:
    judgement = site.judge("f", "a=one", "a=two")
    changes = Changes()
    site.barrier.commit_early(judgement, changes, [1])
    site.store.write(changes)
    site.barrier.release(judgement)
    assert site.judge("g", "a=two", batch="2").verdicts == [DUPLICATE]
    site.deliver("g", "b", batch="3")
    site.restart()
    assert site.judge("g", "a=two", batch="2").verdicts == [DUPLICATE]


def test_what_was_confirmed_behind_a_refused_message_is_a_replay_after_a_crash(
    site: Site,
) -> None:
    judgement = site.judge("f", "a", "b", "c")
    changes = Changes()
    site.barrier.commit_early(judgement, changes, [1, 2])
    site.store.write(changes)
    site.restart()
    assert site.judge("f", "a", "b", "c").verdicts == [NEW, REPLAY, REPLAY]


def test_the_rest_of_an_early_commit_is_committed_once(site: Site) -> None:
    judgement = site.judge("f", "a", "b", "c")
    changes = Changes()
    site.barrier.commit_early(judgement, changes, [1])
    site.store.write(changes)
    site.commit(judgement)
    assert site.barrier.claims == 0
    assert site.deliver("g", "a", "b", "c", batch="2") == [DUPLICATE] * 3


def test_a_batch_is_committed_in_parts(site: Site) -> None:
    judgement = site.judge("f", "a", "b", "c", "d")
    site.commit(judgement, 0, 2)
    assert site.barrier.claims == 2
    site.commit(judgement, 2, 4, 3)
    assert site.barrier.claims == 0
    assert site.judge("g", *"abcd", batch="2").verdicts == [DUPLICATE] * 3 + [NEW]


def test_a_range_committed_twice_is_a_mistake(site: Site) -> None:
    judgement = site.judge("f", "a")
    site.commit(judgement)
    with pytest.raises(BarrierMisuse):
        site.commit(judgement)


def test_a_key_is_remembered_for_a_whole_window_and_not_for_ever(site: Site) -> None:
    now = 0
    site.barrier.rotate_if_due(now)
    rotations = 0
    born: dict[str, int] = {}
    for step in range(60):
        name = f"m{step}"
        assert site.deliver("f", name, batch=name) == [NEW]
        born[name] = now
        for known, since in born.items():
            if now - since <= WINDOW_MS:
                assert site.judge("g", known).verdicts == [DUPLICATE]
        now += MAX_AGEING_MS // 2
        rotations += site.barrier.rotate_if_due(now)
        if step % 7 == 0:
            site.restart()
    assert rotations == 2
    assert site.judge("g", "m0").verdicts == [NEW]


def test_a_clock_that_jumps_never_makes_the_barrier_forget_early(site: Site) -> None:
    site.barrier.rotate_if_due(0)
    site.deliver("f", "a")
    for now in (WINDOW_MS * 1000, 5, WINDOW_MS * 2000, 0, WINDOW_MS * 3000):
        assert not site.barrier.rotate_if_due(now)
        site.restart()
    assert site.judge("g", "a", batch="2").verdicts == [DUPLICATE]


def test_killed_between_emptying_and_naming_a_generation_nothing_young_is_lost(
    site: Site,
) -> None:
    site.deliver("f", "a")
    site.store.clear_table(GENERATIONS[1])
    site.restart()
    assert site.judge("g", "a", batch="2").verdicts == [DUPLICATE]


def test_a_window_that_grows_is_remembered_only_as_time_goes_by(site: Site) -> None:
    now = 0
    site.barrier.rotate_if_due(now)
    assert site.barrier.memory_ms == WINDOW_MS
    site.barrier.set_window(2 * WINDOW_MS)
    assert site.barrier.memory_ms == WINDOW_MS, "what is older was forgotten"
    for hours in range(1, 4):
        now += MAX_AGEING_MS
        site.barrier.rotate_if_due(now)
        assert site.barrier.memory_ms == WINDOW_MS + hours * MAX_AGEING_MS
    site.barrier = Barrier(site.store, 3 * WINDOW_MS, meta_table="meta")
    assert site.barrier.memory_ms == WINDOW_MS + 3 * MAX_AGEING_MS, "grown again at a restart"
    site.barrier.set_window(WINDOW_MS // 2)
    assert site.barrier.memory_ms == WINDOW_MS // 2
    for _ in range(3):
        now += 10 * MAX_AGEING_MS
        site.barrier.rotate_if_due(now)
        assert site.barrier.memory_ms == WINDOW_MS // 2, "never more than the window"


def test_a_window_that_shrinks_lets_the_old_generation_go_sooner(site: Site) -> None:
    site.barrier.rotate_if_due(0)
    site.barrier.set_window(WINDOW_MS // 10)
    site.deliver("f", "a")
    rotated = [site.barrier.rotate_if_due(hour * MAX_AGEING_MS) for hour in range(1, 4)]
    assert rotated == [False, True, False]
    assert site.judge("g", "a", batch="again").verdicts == [DUPLICATE]
    assert site.barrier.rotate_if_due(4 * MAX_AGEING_MS)
    assert site.judge("g", "a", batch="again").verdicts == [NEW]


def test_older_than_the_window_is_told_by_the_receivers_clock() -> None:
    assert not is_beyond_window(1_000, 1_500, 500)
    assert is_beyond_window(1_000, 1_501, 500)
    assert not is_beyond_window(9_000, 1_000, 500), "from the future"
    # An origin whose clock is 600 ms behind ours: what it stamps 900 was published at 1500.
    assert not is_beyond_window(900, 1_500, 500, clock_difference_ms=-600)
    assert is_beyond_window(2_000, 1_600, 500, clock_difference_ms=1_000)


def test_second_keys_stay_in_the_scope_of_the_first() -> None:
    assert second_key(key("a"), b"12345678")[:8] == key("a")[:8]
    assert len({second_key(key(k), c) for k in "ab" for c in (b"x" * 8, b"y" * 8)}) == 4


@pytest.mark.parametrize("seed", range(20))
def test_any_run_delivers_each_content_of_an_identity_once(seed: int) -> None:
    """Random flows, copies, conflicts, refusals, partial commits and kills."""
    chance = random.Random(seed)
    site = Site()
    delivered: dict[tuple[str, str], int] = {}
    for step in range(120):
        flow = chance.choice("fgh")
        messages = [
            f"{chance.randint(0, 12)}={chance.choice(['x', 'y'])}"
            for _ in range(chance.randint(1, 8))
        ]
        judgement = site.judge(flow, *messages, batch=f"{seed}.{step}")
        refused = {index for index in range(len(judgement)) if chance.random() < 0.1}
        end = chance.randint(0, len(judgement))
        if chance.random() < 0.1:
            site.restart()
            continue
        changes = Changes()
        site.barrier.commit(judgement, changes, 0, end, undelivered=frozenset(refused))
        site.store.write(changes)
        site.barrier.release(judgement, end)
        assert site.barrier.claims == 0
        for index in range(end):
            identity, text = messages[index].split("=")
            verdict = judgement.verdicts[index]
            if verdict in (NEW, CONFLICT) and index not in refused:
                delivered[identity, text] = delivered.get((identity, text), 0) + 1
            elif verdict is DUPLICATE:
                assert delivered[identity, text] == 1
            assert verdict is not REPLAY
            assert verdict is not CLAIMED
    assert set(delivered.values()) == {1}
