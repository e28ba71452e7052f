"""What to do about a child, with time as a number and without any process."""

from __future__ import annotations

import inspect
import itertools

import pytest

from isthmus.up import supervision
from isthmus.up.supervision import TRANSITIONS, ChildEvent, Course, CourseError, Phase, Policy

POLICY = Policy()


def running(now: float = 0.0) -> Course:
    course = supervision.begun(supervision.new_course(now), now)
    return supervision.checked(course, True, now)


def wait_after(course: Course, now: float) -> float:
    """How long a child that dies now waits."""
    return supervision.died(course, 1, "exit code 1", now, POLICY).due_at - now


def test_a_new_child_begins_at_once_and_runs_when_it_has_answered() -> None:
    course = supervision.new_course(5.0)
    assert (course.phase, course.due_at) == (Phase.WAITING, 5.0)
    course = supervision.begun(course, 5.1)
    assert (course.phase, course.restarts) == (Phase.STARTING, 0)
    course = supervision.checked(course, False, 5.4)
    assert course.phase is Phase.STARTING
    course = supervision.checked(course, True, 5.7)
    assert (course.phase, course.since, course.unanswered_checks) == (Phase.RUNNING, 5.7, 0)


def test_a_child_that_was_well_is_back_within_two_seconds_however_often_it_dies() -> None:
    course, now = running(), 0.0
    for count in range(1, 50):
        now += 3.0
        course = supervision.died(course, -9, "signal SIGKILL", now, POLICY)
        assert course.phase is Phase.WAITING
        assert course.due_at - now < 1.01
        now = course.due_at
        course = supervision.checked(supervision.begun(course, now), True, now)
        assert course.restarts == count


def test_a_child_that_dies_at_once_waits_twice_as_long_each_time() -> None:
    course, now, waits = supervision.new_course(0.0), 0.0, []
    for _ in range(10):
        course = supervision.died(supervision.begun(course, now), 1, "exit code 1", now, POLICY)
        waits.append(round(course.due_at - now, 3))
        now = course.due_at
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_dying_just_after_the_first_answer_is_dying_at_once() -> None:
    course, now = supervision.new_course(0.0), 0.0
    for _ in range(6):
        course = supervision.checked(supervision.begun(course, now), True, now)
        course = supervision.died(course, 1, "exit code 1", now + 0.5, POLICY)
        now = course.due_at
    assert course.deaths_at_once == 6
    assert course.due_at - course.since == pytest.approx(6.4)


def test_a_minute_of_health_forgets_all_deaths() -> None:
    course, now = supervision.new_course(0.0), 0.0
    for _ in range(8):
        course = supervision.died(supervision.begun(course, now), 1, "", now, POLICY)
        now = course.due_at
    course = supervision.checked(supervision.begun(course, now), True, now)
    assert wait_after(course, now + 59.0) == pytest.approx(1.0)
    assert wait_after(course, now + 60.0) == pytest.approx(0.2)


def test_so_many_checks_without_an_answer_in_a_row_are_a_hang() -> None:
    course = running()
    for answered in (False, False, False, True, False, False, False):
        course = supervision.checked(course, answered, 1.0)
        assert not supervision.hangs(course, 1.0, POLICY)
    course = supervision.checked(course, False, 1.0)
    assert supervision.hangs(course, 1.0, POLICY)
    course = supervision.killed(course, 1.0)
    assert course.phase is Phase.KILLED
    assert not supervision.hangs(course, 1.0, POLICY)
    assert supervision.died(course, -9, "killed", 1.1, POLICY).phase is Phase.WAITING


def test_time_alone_is_no_hang_for_the_supervisor_may_have_slept() -> None:
    course = supervision.checked(running(), False, 100_000.0)
    assert not supervision.hangs(course, 100_000.0, POLICY)


def test_a_child_may_take_long_to_start_but_not_for_ever() -> None:
    course = supervision.begun(supervision.new_course(0.0), 0.0)
    for now in range(1, 60):
        course = supervision.checked(course, False, float(now))
        assert not supervision.hangs(course, float(now), POLICY)
    assert supervision.hangs(course, 60.0, POLICY)


def test_a_broker_that_took_long_to_be_ready_may_answer_late() -> None:
    # A broker is asked only when its listeners are there, which a busy machine may make late.
    course = supervision.begun(supervision.new_course(0.0), 0.0)
    course = supervision.checked(course, False, 100.0)
    assert not supervision.hangs(course, 100.0, POLICY)
    assert supervision.checked(course, True, 101.0).phase is Phase.RUNNING


def test_an_exit_with_a_reason_stops_it_until_someone_has_mended_it() -> None:
    course = supervision.died(running(), 3, "exit code 3: the state is lost", 9.0, POLICY)
    assert (course.phase, course.reason) == (Phase.STOPPED, "exit code 3: the state is lost")
    with pytest.raises(CourseError):
        supervision.begun(course, 10.0)
    course = supervision.retried(course, 11.0)
    assert (course.phase, course.due_at, course.reason) == (Phase.WAITING, 11.0, None)
    assert course.last_exit == "exit code 3: the state is lost"


def test_a_child_ordered_to_end_is_not_begun_again_whatever_its_answer() -> None:
    for exit_code in (0, 1, 3, -9, None):
        course = supervision.end_ordered(running(), 1.0)
        course = supervision.died(course, exit_code, "ended", 2.0, POLICY)
        assert (course.phase, course.reason) == (Phase.ENDED, None)


@pytest.mark.parametrize(
    ("phase", "event"),
    [pair for pair in itertools.product(Phase, ChildEvent) if pair not in TRANSITIONS],
)
def test_an_impossible_event_raises(phase: Phase, event: ChildEvent) -> None:
    course = Course(phase=phase, since=0.0, due_at=0.0)
    events = {
        ChildEvent.BEGUN: lambda: supervision.begun(course, 1.0),
        ChildEvent.HEALTHY: lambda: supervision.checked(course, True, 1.0),
        ChildEvent.UNHEALTHY: lambda: supervision.checked(course, False, 1.0),
        ChildEvent.HANGS: lambda: supervision.killed(course, 1.0),
        ChildEvent.DIED: lambda: supervision.died(course, 1, "", 1.0, POLICY),
        ChildEvent.GAVE_REASON: lambda: supervision.died(course, 3, "", 1.0, POLICY),
        ChildEvent.RETRIED: lambda: supervision.retried(course, 1.0),
        ChildEvent.END_ORDERED: lambda: supervision.end_ordered(course, 1.0),
    }
    if (phase, event) == (Phase.ENDING, ChildEvent.GAVE_REASON):
        assert events[event]().phase is Phase.ENDED  # a reason is of no use any more
        return
    with pytest.raises(CourseError) as raised:
        events[event]()
    assert (raised.value.phase, raised.value.event) == (phase, event)


def test_every_phase_but_the_last_can_be_told_to_end_or_is_ending() -> None:
    for phase in set(Phase) - {Phase.ENDING, Phase.ENDED}:
        assert TRANSITIONS[phase, ChildEvent.END_ORDERED] is Phase.ENDING


def test_a_hang_is_replaced_within_fifteen_seconds_by_the_policies_in_use() -> None:
    from isthmus.up.supervised import BrokerProcess, NodeProcess
    from isthmus.up.supervisor import BROKER_POLICY, NODE_POLICY

    for policy, kind in ((NODE_POLICY, NodeProcess), (BROKER_POLICY, BrokerProcess)):
        limit_s = inspect.signature(kind).parameters["check_limit_s"].default
        step_s = max(policy.check_every_s, limit_s)
        longest = policy.check_every_s + (policy.failed_checks - 1) * step_s + limit_s
        assert longest + policy.longest_wait_s < 14.0
