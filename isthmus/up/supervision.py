"""Course of a supervised child, and the decisions about the child. Pure.

    WAITING --begun--> STARTING --healthy--> RUNNING --hangs--> KILLED
       ^                  |  `--hangs--------------------------->  |
       +------ died ------+----------------------- died -----------+
       STOPPED  died with an exit code that gives a reason; stays until `retried`
       ENDING --died--> ENDED    ended on order: never begun again

An event outside the table below raises and changes nothing. Times are seconds of one monotonic
clock, passed as an argument.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


class Phase(enum.StrEnum):
    """Phase of a child, in the words of the status."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    KILLED = "killed"
    STOPPED = "stopped"
    ENDING = "ending"
    ENDED = "ended"


class ChildEvent(enum.StrEnum):
    """Event in the life of a child."""

    BEGUN = "begun"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    HANGS = "hangs"
    DIED = "died"
    GAVE_REASON = "gave a reason"
    RETRIED = "retried"
    END_ORDERED = "told to end"


TRANSITIONS: Mapping[tuple[Phase, ChildEvent], Phase] = MappingProxyType(
    {
        (Phase.WAITING, ChildEvent.BEGUN): Phase.STARTING,
        (Phase.WAITING, ChildEvent.RETRIED): Phase.WAITING,
        (Phase.WAITING, ChildEvent.END_ORDERED): Phase.ENDING,
        (Phase.STARTING, ChildEvent.HEALTHY): Phase.RUNNING,
        (Phase.STARTING, ChildEvent.UNHEALTHY): Phase.STARTING,
        (Phase.STARTING, ChildEvent.HANGS): Phase.KILLED,
        (Phase.STARTING, ChildEvent.DIED): Phase.WAITING,
        (Phase.STARTING, ChildEvent.GAVE_REASON): Phase.STOPPED,
        (Phase.STARTING, ChildEvent.END_ORDERED): Phase.ENDING,
        (Phase.RUNNING, ChildEvent.HEALTHY): Phase.RUNNING,
        (Phase.RUNNING, ChildEvent.UNHEALTHY): Phase.RUNNING,
        (Phase.RUNNING, ChildEvent.HANGS): Phase.KILLED,
        (Phase.RUNNING, ChildEvent.DIED): Phase.WAITING,
        (Phase.RUNNING, ChildEvent.GAVE_REASON): Phase.STOPPED,
        (Phase.RUNNING, ChildEvent.END_ORDERED): Phase.ENDING,
        (Phase.KILLED, ChildEvent.DIED): Phase.WAITING,
        (Phase.KILLED, ChildEvent.GAVE_REASON): Phase.STOPPED,
        (Phase.KILLED, ChildEvent.END_ORDERED): Phase.ENDING,
        (Phase.STOPPED, ChildEvent.RETRIED): Phase.WAITING,
        (Phase.STOPPED, ChildEvent.END_ORDERED): Phase.ENDING,
        (Phase.ENDING, ChildEvent.DIED): Phase.ENDED,
    }
)


class CourseError(RuntimeError):
    """Event impossible in the phase: the supervisor has lost track of the child."""

    def __init__(self, phase: Phase, event: ChildEvent) -> None:
        super().__init__(f"a child that is {phase.value} cannot get the event {event.value!r}")
        self.phase = phase
        self.event = event


@dataclass(frozen=True, slots=True)
class Policy:
    """Patience with a kind of child; times in seconds.

    A hang is `failed_checks` checks in a row without an answer, so it takes at most (failed_checks
    - 1) * max(check_every_s, a check's time-out) + check_every_s + the time-out: keep the sum below
    15. Checks are counted rather than time, because a supervisor that was itself suspended must not
    take children for hanging.

    A child that had answered is begun again within `longest_wait_s`. A child that dies before an
    answer, or within `at_once_s` of the first, is in the way of others and waits `first_wait_s`,
    doubled with each such death up to `longest_wait_at_once_s`. Deaths are forgotten after
    `settled_after_s` of health.
    """

    check_every_s: float = 2.5
    failed_checks: int = 4
    start_check_every_s: float = 0.25
    start_limit_s: float = 60.0
    first_wait_s: float = 0.2
    longest_wait_s: float = 1.0
    longest_wait_at_once_s: float = 30.0
    at_once_s: float = 1.0
    settled_after_s: float = 60.0
    reason_exit_codes: frozenset[int] = field(default_factory=lambda: frozenset({3}))


@dataclass(frozen=True, slots=True)
class Course:
    """State of one child. `due_at` is the next start while waiting, `reason` the cause of a final
    stop, `last_exit` the end of the last process.
    """

    phase: Phase
    since: float
    due_at: float
    begun_at: float | None = None
    healthy_since: float | None = None
    unanswered_checks: int = 0
    deaths: int = 0
    deaths_at_once: int = 0
    restarts: int = 0
    was_begun: bool = False
    last_exit: str | None = None
    reason: str | None = None


def new_course(now: float) -> Course:
    """Return the course of a child to begin at once."""
    return Course(phase=Phase.WAITING, since=now, due_at=now)


def begun(course: Course, now: float) -> Course:
    """Note that the process is being started."""
    return replace(
        _moved(course, ChildEvent.BEGUN, now),
        begun_at=now,
        healthy_since=None,
        unanswered_checks=0,
        restarts=course.restarts + course.was_begun,
        was_begun=True,
    )


def checked(course: Course, answered: bool, now: float) -> Course:
    """Note the result of a health check."""
    if not answered:
        moved = _moved(course, ChildEvent.UNHEALTHY, now)
        return replace(moved, unanswered_checks=course.unanswered_checks + 1)
    moved = _moved(course, ChildEvent.HEALTHY, now)
    healthy_since = now if course.healthy_since is None else course.healthy_since
    return replace(moved, unanswered_checks=0, healthy_since=healthy_since)


def hangs(course: Course, now: float, policy: Policy) -> bool:
    """True if the child should be killed and replaced."""
    if course.unanswered_checks < policy.failed_checks:
        return False
    if course.phase is Phase.STARTING and course.begun_at is not None:
        return now - course.begun_at >= policy.start_limit_s
    return course.phase is Phase.RUNNING


def killed(course: Course, now: float) -> Course:
    """Note a SIGKILL to a hung child; `died` follows."""
    return _moved(course, ChildEvent.HANGS, now)


def died(
    course: Course, exit_code: int | None, exit_words: str, now: float, policy: Policy
) -> Course:
    """Note the end of the process, or a failed start (`exit_code` None); `exit_words` describes
    both.
    """
    if course.phase is Phase.ENDING:
        return replace(_moved(course, ChildEvent.DIED, now), last_exit=exit_words)
    if exit_code in policy.reason_exit_codes:
        moved = _moved(course, ChildEvent.GAVE_REASON, now)
        return replace(moved, last_exit=exit_words, reason=exit_words)
    lived = 0.0 if course.healthy_since is None else now - course.healthy_since
    if lived >= policy.settled_after_s:
        deaths, at_once = 1, 0
    elif lived >= policy.at_once_s:
        deaths, at_once = course.deaths + 1, 0
    else:
        deaths, at_once = course.deaths + 1, course.deaths_at_once + 1
    if at_once:
        wait = _doubled(policy.first_wait_s, at_once, policy.longest_wait_at_once_s)
    else:
        wait = _doubled(policy.first_wait_s, deaths, policy.longest_wait_s)
    return replace(
        _moved(course, ChildEvent.DIED, now),
        due_at=now + wait,
        deaths=deaths,
        deaths_at_once=at_once,
        last_exit=exit_words,
    )


def retried(course: Course, now: float) -> Course:
    """Begin at once and forget deaths, since the cause was mended."""
    moved = _moved(course, ChildEvent.RETRIED, now)
    return replace(moved, due_at=now, deaths=0, deaths_at_once=0, reason=None)


def end_ordered(course: Course, now: float) -> Course:
    """Note the order to end."""
    return _moved(course, ChildEvent.END_ORDERED, now)


def next_check_at(course: Course, last_began: float, policy: Policy) -> float:
    """Return the time of the next check, given the beginning of the last."""
    if course.phase is Phase.STARTING:
        return last_began + policy.start_check_every_s
    return last_began + policy.check_every_s


def _moved(course: Course, event: ChildEvent, now: float) -> Course:
    target = TRANSITIONS.get((course.phase, event))
    if target is None:
        raise CourseError(course.phase, event)
    return course if target is course.phase else replace(course, phase=target, since=now)


def _doubled(first: float, times: int, longest: float) -> float:
    # The exponent is bounded because a float is: a child may die for years.
    return min(first * 2.0 ** min(times - 1, 30), longest)
