"""The account of a run finds what does not add up, and excuses nothing but what is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from relay.state.flow_state import ANNOUNCED_AT_MOST
from simulation.invariants import Arrived
from tests.chaos.account import AMID, Account, Published, SiteBooks, account
from tests.chaos.schedule import Fault

COUNT = 1000
OTHERS = ("tokyo", "tokyo/anonymous", "lima")
KILL = Fault(1, "kill-broker", "tokyo", 1.0, 2.0)
FULL = Fault(2, "queue-full", "paris", 1.0, 2.0)


def body(origin: str, number: int) -> bytes:
    return f"{origin}/{number}".encode()


def came(origin: str, number: int, *, flagged: bool = False) -> Arrived:
    path = () if origin == "paris" else (origin.split("/")[0], "paris")
    return Arrived(origin, number, flagged, path, body(origin, number))


def all_that_came() -> list[Arrived]:
    """At paris, in turns; its own messages among them."""
    return [came(origin, n) for n in range(COUNT) for origin in (*OTHERS, "paris")]


def published() -> list[Published]:
    return [
        Published(origin, {n: body(origin, n) for n in range(COUNT)}, {})
        for origin in (*OTHERS, "paris")
    ]


def accounted(
    witness: Sequence[Arrived],
    victim: Sequence[Arrived],
    struck: Sequence[tuple[int, int]] = (),
    faults: Sequence[Fault] = (),
    sent: Sequence[Published] | None = None,
) -> Account:
    return account([SiteBooks("paris", witness, victim, struck)], sent or published(), faults)


def test_what_came_once_everywhere_adds_up() -> None:
    found = accounted(all_that_came(), all_that_came())
    assert (found.broken, found.flagged, found.destroyed) == ([], {"paris": 0}, {"paris": 0})


def lost(records: list[Arrived]) -> None:
    records.remove(came("tokyo", 500))


def last_one_lost(records: list[Arrived]) -> None:
    records.remove(came("lima", COUNT - 1))


def doubled(records: list[Arrived]) -> None:
    records.append(came("tokyo/anonymous", 3))


def altered(records: list[Arrived]) -> None:
    records[400] = records[400]._replace(body=b"something else")


def invented(records: list[Arrived]) -> None:
    records.append(came("lima", COUNT))


def returned(records: list[Arrived]) -> None:
    records[0] = records[0]._replace(path=("paris", "tokyo"))


def out_of_order(records: list[Arrived]) -> None:
    records[0], records[4] = records[4], records[0]


def flagged_without_doubt(records: list[Arrived]) -> None:
    records.append(came("tokyo", 7, flagged=True))


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        *[(lost, "I1"), (last_one_lost, "I1"), (doubled, "I2"), (altered, "I3")],
        *[(invented, "I3"), (returned, "I4"), (out_of_order, "I5"), (flagged_without_doubt, "I2")],
    ],
)
def test_an_altered_record_is_found(harm: Callable[[list[Arrived]], None], says: str) -> None:
    records = all_that_came()
    harm(records)
    broken = accounted(records, records).broken
    assert broken
    assert broken[0].startswith(f"{says} at paris")


@pytest.mark.parametrize("harm", [lost, last_one_lost, doubled, altered, invented, out_of_order])
def test_an_altered_record_of_the_struck_queue_alone_is_found(
    harm: Callable[[list[Arrived]], None],
) -> None:
    records = all_that_came()
    harm(records)
    assert len(accounted(all_that_came(), records).broken) == 1


def test_what_was_in_a_purged_queue_may_be_gone_and_is_counted() -> None:
    witness = all_that_came()
    found = accounted(witness, witness[2000:], [(2000, 2000)])
    assert found.broken == []
    assert found.destroyed == {"paris": 1500}  # of the 2000, a quarter is the site's own


def test_what_came_after_a_purge_may_not_be_gone() -> None:
    witness = all_that_came()
    found = accounted(witness, witness[2000 + AMID + 10 :], [(2000, 2000)])
    assert [one[:2] for one in found.broken] == ["I1"]


def test_what_a_purge_destroyed_does_not_come_back_unflagged() -> None:
    witness = all_that_came()
    found = accounted(witness, [witness[0], *witness[2000:]], [(2000, 2000)])
    assert [one[:2] for one in found.broken] == ["I2"]


def test_a_purge_excuses_nothing_at_the_queue_beside_it() -> None:
    witness = all_that_came()[2000:]
    assert accounted(witness, witness, [(2000, 2000)]).broken


def test_copies_are_flagged_only_as_far_as_faults_left_a_doubt() -> None:
    few = [came("tokyo", n, flagged=True) for n in range(ANNOUNCED_AT_MOST)]
    one_more = [*few, came("tokyo", ANNOUNCED_AT_MOST, flagged=True)]
    assert accounted(all_that_came() + few, all_that_came(), faults=[KILL]).broken == []
    assert accounted(all_that_came() + one_more, all_that_came(), faults=[KILL]).broken
    assert accounted(all_that_came() + one_more, all_that_came(), faults=[FULL]).broken == []
    of_another = [came("lima", 7, flagged=True)]
    assert accounted(all_that_came() + of_another, all_that_came(), faults=[KILL]).broken


def test_what_was_never_answered_for_may_come_or_not_but_once() -> None:
    sent = [Published("tokyo", {}, {0: body("tokyo", 0)})]
    once = [came("tokyo", 0)]
    assert accounted([], [], sent=sent).broken == []
    assert accounted(once, once, sent=sent).broken == []
    assert accounted(once * 2, once, sent=sent).broken
