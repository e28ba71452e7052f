"""What is under way, with time as a number."""

from wan_proxy.delay_queue import DelayQueue


def test_nothing_overtakes_whatever_its_delay() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("slow", 10, arrives=5.0)
    queue.push("fast", 20, arrives=2.0)
    assert queue.next_arrival() == 5.0
    assert queue.pop_due(4.9) is None
    assert queue.bytes_under_way == 30
    assert [queue.pop_due(5.0), queue.pop_due(5.0), queue.pop_due(5.0)] == ["slow", "fast", None]
    assert queue.bytes_under_way == 0


def test_what_comes_after_something_late_waits_for_it_even_when_that_is_gone() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("late", 1, arrives=9.0)
    assert queue.pop_due(9.0) == "late"
    queue.push("next", 1, arrives=8.0)
    assert queue.next_arrival() == 9.0


def test_clearing_drops_and_says_how_much() -> None:
    queue: DelayQueue[str] = DelayQueue()
    queue.push("a", 3, arrives=1.0)
    queue.push("b", 4, arrives=1.0)
    assert queue.clear() == 7
    assert queue.pop_due(100.0) is None
    assert queue.next_arrival() is None
