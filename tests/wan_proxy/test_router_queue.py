"""The shared queue, with time as a number."""

import random

import pytest

from wan_proxy.router_queue import BURST_BYTES, RouterQueue, TokenBucket


def rested(rate: float | None, limit: int = 10**9) -> RouterQueue[object, str]:
    """A queue at time 0 whose burst is spent."""
    queue: RouterQueue[object, str] = RouterQueue(rate, limit, 0.0)
    queue.push("burst", "burst", BURST_BYTES, 0.0)
    assert [departure.item for departure in queue.pop_due(0.0)] == ["burst"]
    return queue


def departures(queue: RouterQueue[object, str], now: float) -> list[tuple[str, float]]:
    return [(departure.item, round(departure.at, 6)) for departure in queue.pop_due(now)]


def test_items_leave_in_order_at_the_rate() -> None:
    queue = rested(8_000)
    queue.push("a", "a1", 1_000, 0.0)
    queue.push("b", "b1", 500, 0.0)
    queue.push("a", "a2", 500, 0.1)
    assert queue.next_departure() == pytest.approx(1.0)
    assert departures(queue, 0.99) == []
    assert departures(queue, 1.6) == [("a1", 1.0), ("b1", 1.5)]
    assert queue.bytes_waiting == 500
    assert departures(queue, 2.0) == [("a2", 2.0)]
    assert queue.next_departure() is None


def test_a_late_timer_costs_no_capacity() -> None:
    queue = rested(8_000)
    for item in ("1", "2", "3"):
        queue.push("a", item, 1_000, 0.0)
    assert departures(queue, 100.0) == [("1", 1.0), ("2", 2.0), ("3", 3.0)]


def test_the_queue_is_full_at_its_limit_and_drops_nothing() -> None:
    queue = rested(8_000, limit=1_000)
    queue.push("a", "1", 999, 0.0)
    assert not queue.is_full
    queue.push("a", "2", 500, 0.0)
    assert queue.is_full
    assert departures(queue, 1.0) == [("1", 0.999)]
    assert not queue.is_full
    assert departures(queue, 2.0) == [("2", 1.499)]


def test_a_mark_without_size_keeps_its_place() -> None:
    queue = rested(8_000)
    queue.push("a", "bytes", 1_000, 0.0)
    queue.push("a", "end", 0, 0.0)
    queue.push("b", "bytes", 1_000, 0.0)
    assert departures(queue, 1.0) == [("bytes", 1.0), ("end", 1.0)]


def test_another_rate_holds_for_what_waits_and_for_the_rest_of_the_head() -> None:
    queue = rested(8_000)
    queue.push("a", "1", 1_000, 0.0)
    queue.push("a", "2", 1_000, 0.0)
    queue.change(80_000, 10**9, 0.5)
    assert departures(queue, 1.0) == [("1", 0.55), ("2", 0.65)]
    queue.push("a", "3", 10_000, 1.0)
    queue.change(None, 10**9, 1.1)
    assert departures(queue, 1.1) == [("3", 1.1)]


def test_the_time_of_a_cut_is_no_time_to_send_in() -> None:
    queue = rested(8_000)
    for item in ("1", "2", "3"):
        queue.push("a", item, BURST_BYTES, 0.0)
    queue.restart(60.0)
    # The rest earned the burst, once; then it is the rate again.
    assert departures(queue, 60.1) == [("1", 60.0), ("2", 60.0)]
    assert departures(queue, 70.0) == [("3", 63.0)]


def test_a_connection_that_dies_takes_its_items_along() -> None:
    queue = rested(8_000)
    for owner, item in (("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2")):
        queue.push(owner, item, 1_000, 0.0)
    assert queue.remove("a") == 2_000
    assert queue.remove("a") == 0
    assert queue.bytes_waiting == 2_000
    assert [item for item, _ in departures(queue, 10.0)] == ["b1", "b2"]
    queue.push("b", "b3", 1_000, 10.0)
    assert queue.remove("b") == 1_000
    assert queue.next_departure() is None


@pytest.mark.parametrize("seed", range(20))
def test_no_course_of_events_goes_faster_than_the_rate_or_out_of_order(seed: int) -> None:
    rng = random.Random(seed)
    queue = rested(80_000)
    now, pushed, passed = 0.0, 0, 0
    order: list[int] = []
    while passed < 300:
        now += rng.random() * 0.05
        if pushed < 300:
            queue.push(rng.choice("ab"), str(pushed), rng.randrange(1, 1500), now)
            pushed += 1
        for departure in queue.pop_due(now):
            assert departure.at <= now
            order.append(int(departure.item))
            passed += 1
    assert order == list(range(300))


def test_after_the_burst_bytes_take_their_time() -> None:
    bucket = TokenBucket(8_000, burst_bytes=500, now=10.0)
    assert bucket.reserve(500, 10.0) == 10.0
    assert bucket.reserve(1_000, 10.0) == pytest.approx(11.0)
    assert bucket.reserve(1_000, 10.5) == pytest.approx(12.0)


def test_rest_earns_no_more_than_the_burst() -> None:
    bucket = TokenBucket(8_000, burst_bytes=500, now=0.0)
    assert bucket.reserve(1_500, 1_000.0) == pytest.approx(1_001.0)


def test_without_a_rate_all_passes_at_once() -> None:
    bucket = TokenBucket(None, burst_bytes=0, now=0.0)
    assert bucket.reserve(10**12, 3.0) == 3.0


def test_a_new_rate_holds_for_what_is_outstanding() -> None:
    bucket = TokenBucket(8_000, burst_bytes=0, now=0.0)
    assert bucket.reserve(10_000, 0.0) == pytest.approx(10.0)
    assert bucket.change_rate(80_000, 5.0) == pytest.approx(5.5)
    assert bucket.reserve(10_000, 5.0) == pytest.approx(6.5)
    assert bucket.change_rate(None, 5.1) == 5.1
    assert bucket.change_rate(8_000, 6.0) == 6.0
    assert bucket.reserve(1_000, 6.0) == pytest.approx(7.0)
