"""Pure: the course of a supervised child, and what is to be done about it.

    WAITING --begun--> STARTING --healthy--> RUNNING --hangs--> KILLED
       ^                  |  `--hangs--------------------------->  |
       +------ died ------+----------------------- died -----------+
       STOPPED  died with an exit code that gives a reason; stays until `retried`
       ENDING --died--> ENDED    asked to end: never begun again

What is not in the table below cannot happen: it raises and changes nothing. All times are seconds
of one monotonic clock, which is an argument.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


class Phase(enum.StrEnum):
    """Where a child is; the words that status shows."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    KILLED = "killed"
    STOPPED = "stopped"
    ENDING = "ending"
    ENDED = "ended"


class Event(enum.StrEnum):
    """What can happen to a child."""

    BEGUN = "begun"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    HANGS = "hangs"
    DIED = "died"
    GAVE_REASON = "gave a reason"
    RETRIED = "retried"
    TOLD_TO_END = "told to end"


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = MappingProxyType(
    {
        (Phase.WAITING, Event.BEGUN): Phase.STARTING,
        (Phase.WAITING, Event.RETRIED): Phase.WAITING,
        (Phase.WAITING, Event.TOLD_TO_END): Phase.ENDING,
        (Phase.STARTING, Event.HEALTHY): Phase.RUNNING,
        (Phase.STARTING, Event.UNHEALTHY): Phase.STARTING,
        (Phase.STARTING, Event.HANGS): Phase.KILLED,
        (Phase.STARTING, Event.DIED): Phase.WAITING,
        (Phase.STARTING, Event.GAVE_REASON): Phase.STOPPED,
        (Phase.STARTING, Event.TOLD_TO_END): Phase.ENDING,
        (Phase.RUNNING, Event.HEALTHY): Phase.RUNNING,
        (Phase.RUNNING, Event.UNHEALTHY): Phase.RUNNING,
        (Phase.RUNNING, Event.HANGS): Phase.KILLED,
        (Phase.RUNNING, Event.DIED): Phase.WAITING,
        (Phase.RUNNING, Event.GAVE_REASON): Phase.STOPPED,
        (Phase.RUNNING, Event.TOLD_TO_END): Phase.ENDING,
        (Phase.KILLED, Event.DIED): Phase.WAITING,
        (Phase.KILLED, Event.GAVE_REASON): Phase.STOPPED,
        (Phase.KILLED, Event.TOLD_TO_END): Phase.ENDING,
        (Phase.STOPPED, Event.RETRIED): Phase.WAITING,
        (Phase.STOPPED, Event.TOLD_TO_END): Phase.ENDING,
        (Phase.ENDING, Event.DIED): Phase.ENDED,
    }
)


class CourseError(RuntimeError):
    """`event` cannot happen to a child in `phase`: the supervisor itself has lost track."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"a child that is {phase.value} cannot get the event {event.value!r}")
        self.phase = phase
        self.event = event


@dataclass(frozen=True, slots=True)
class Policy:
    """How patient to be with a kind of child. All times in seconds.

    A hang is `failed_checks` checks in a row without an answer, so it takes at most
    (failed_checks - 1) * max(check_every_s, a check's time-out) + check_every_s + that time-out:
    keep it below 15. Counted in checks and not in time, because a supervisor that was itself
    suspended for a while must not take its children for hanging.

    A child that had answered is begun again within `longest_wait_s`, whatever happened before;
    one that dies before it ever answers, or within `at_once_s` of that, is in the way of the others
    and waits `first_wait_s`, doubled at each such death up to `longest_wait_at_once_s`. Deaths are
    forgotten after `settled_after_s` of health.
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
    """What is known of one child. `due_at` is when to begin it, while it waits; `reason` is why it
    stopped for good, `last_exit` how its last process ended."""

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
    """A child that is to begin at once."""
    return Course(phase=Phase.WAITING, since=now, due_at=now)


def begun(course: Course, now: float) -> Course:
    """Its process is being started."""
    return replace(
        _moved(course, Event.BEGUN, now),
        begun_at=now,
        healthy_since=None,
        unanswered_checks=0,
        restarts=course.restarts + course.was_begun,
        was_begun=True,
    )


def checked(course: Course, answered: bool, now: float) -> Course:
    """It was asked whether it is well."""
    if not answered:
        moved = _moved(course, Event.UNHEALTHY, now)
        return replace(moved, unanswered_checks=course.unanswered_checks + 1)
    moved = _moved(course, Event.HEALTHY, now)
    healthy_since = now if course.healthy_since is None else course.healthy_since
    return replace(moved, unanswered_checks=0, healthy_since=healthy_since)


def hangs(course: Course, now: float, policy: Policy) -> bool:
    """Whether it should be killed and replaced."""
    if course.unanswered_checks < policy.failed_checks:
        return False
    if course.phase is Phase.STARTING and course.begun_at is not None:
        return now - course.begun_at >= policy.start_limit_s
    return course.phase is Phase.RUNNING


def killed(course: Course, now: float) -> Course:
    """It hung and has got a SIGKILL; `died` follows."""
    return _moved(course, Event.HANGS, now)


def died(course: Course, exit_code: int | None, told: str, now: float, policy: Policy) -> Course:
    """Its process has ended, or could not be begun (`exit_code` None); `told` says how and why."""
    if course.phase is Phase.ENDING:
        return replace(_moved(course, Event.DIED, now), last_exit=told)
    if exit_code in policy.reason_exit_codes:
        moved = _moved(course, Event.GAVE_REASON, now)
        return replace(moved, last_exit=told, reason=told)
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
        _moved(course, Event.DIED, now),
        due_at=now + wait,
        deaths=deaths,
        deaths_at_once=at_once,
        last_exit=told,
    )


def retried(course: Course, now: float) -> Course:
    """Someone has mended what was wrong: begin at once, forgetting the deaths."""
    moved = _moved(course, Event.RETRIED, now)
    return replace(moved, due_at=now, deaths=0, deaths_at_once=0, reason=None)


def told_to_end(course: Course, now: float) -> Course:
    """The supervisor is ending; so shall this."""
    return _moved(course, Event.TOLD_TO_END, now)


def next_check_at(course: Course, last_began: float, policy: Policy) -> float:
    """When to ask again, from when the last check began."""
    if course.phase is Phase.STARTING:
        return last_began + policy.start_check_every_s
    return last_began + policy.check_every_s


def _moved(course: Course, event: Event, now: float) -> Course:
    target = TRANSITIONS.get((course.phase, event))
    if target is None:
        raise CourseError(course.phase, event)
    return course if target is course.phase else replace(course, phase=target, since=now)


def _doubled(first: float, times: int, longest: float) -> float:
    # The exponent is bounded because a float is: a child may die for years.
    return min(first * 2.0 ** min(times - 1, 30), longest)
