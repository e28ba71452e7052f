"""When a canary is due, and how long one has not come back."""

from __future__ import annotations

import pytest

from relay.batches.batch import EVERY_SITE, BatchName, Series
from relay.links.canaries import QUIET_S, Canaries, LinkActivity
from relay.links.link_state import STALLED_S
from relay.packing.requested_parcels import CanaryParcel

NAME = BatchName(Series("paris", bytes(8), "", 1, EVERY_SITE), 0)


def links(lima: int | None, tokyo: int | None, *, has: str = "") -> list[LinkActivity]:
    """How many were acknowledged over each; and whose log was told to have the canary."""
    return [
        LinkActivity("to lima", lima, lambda name: name == NAME and has == "lima"),
        LinkActivity("to tokyo", tokyo, lambda name: name == NAME and has == "tokyo"),
    ]


def canary() -> CanaryParcel:
    return CanaryParcel(0)


@pytest.fixture
def quiet() -> Canaries:
    """Of two links that have been quiet since second 0."""
    canaries = Canaries()
    assert not canaries.look(links(7, 0), 0.0)
    return canaries


def test_one_is_due_as_soon_as_one_link_is_quiet_for_long(quiet: Canaries) -> None:
    assert not quiet.look(links(8, 0), QUIET_S - 1)
    assert quiet.look(links(9, 0), QUIET_S)
    # As long as the packer takes none, it is due.
    assert quiet.look(links(9, 0), QUIET_S + 1)


def test_none_is_due_over_links_that_get_acknowledgements(quiet: Canaries) -> None:
    for second in range(1, 200):
        assert not quiet.look(links(7 + second, second // 20), second)


def test_one_that_comes_back_everywhere_is_followed_by_the_next_after_the_same_time(
    quiet: Canaries,
) -> None:
    assert quiet.look(links(7, 0), QUIET_S)
    quiet.asked(canary(), QUIET_S)
    back = links(8, 1)
    assert not quiet.look(back, QUIET_S + 1)
    assert quiet.unanswered_s("to lima", 2 * QUIET_S) == 0.0
    assert not quiet.look(back, 2 * QUIET_S)
    assert quiet.look(back, 2 * QUIET_S + 1)


def test_a_link_over_which_it_does_not_come_back_is_known_and_causes_no_more_of_them(
    quiet: Canaries,
) -> None:
    quiet.look(links(7, 0), QUIET_S)
    quiet.asked(canary(), QUIET_S)
    acked = 8
    for second in range(1, 200):
        acked += second % 10 == 0
        due = quiet.look(links(acked, 0), QUIET_S + second)
        assert not due
    assert quiet.unanswered_s("to tokyo", QUIET_S + 200) == 200.0
    assert quiet.unanswered_s("to lima", QUIET_S + 200) == 0.0


def test_within_a_minute_of_the_last_acknowledgement_a_link_that_forwards_nothing_is_known() -> (
    None
):
    assert QUIET_S + STALLED_S + 2 < 60


def test_a_link_without_session_is_not_quiet_but_down(quiet: Canaries) -> None:
    for second in range(1, 100):
        assert not quiet.look(links(7 + second, None), second)
    assert quiet.unanswered_s("to tokyo", 100.0) == 0.0
    # It is given the same time as any other once it is back.
    assert not quiet.look(links(200, 0), 100.0)
    assert quiet.look(links(201, 0), 100.0 + QUIET_S)


def test_one_that_went_away_and_came_back_does_not_owe_what_was_asked_before(
    quiet: Canaries,
) -> None:
    quiet.look(links(7, 0), QUIET_S)
    quiet.asked(canary(), QUIET_S)
    quiet.look(links(8, None), QUIET_S + 50)
    quiet.look(links(9, 0), QUIET_S + 60)
    assert quiet.unanswered_s("to tokyo", QUIET_S + 60) == 0.0


def test_a_session_that_begins_with_it_in_the_receivers_log_has_brought_it_back(
    quiet: Canaries,
) -> None:
    quiet.look(links(7, 0), QUIET_S)
    asked = canary()
    quiet.asked(asked, QUIET_S)
    quiet.look(links(7, 0, has="tokyo"), QUIET_S + 1)
    assert quiet.unanswered_s("to tokyo", QUIET_S + 2) == 2.0  # our own log has not got it
    asked.is_logged(NAME)
    quiet.look(links(7, 0, has="tokyo"), QUIET_S + 3)
    assert quiet.unanswered_s("to tokyo", QUIET_S + 4) == 0.0
    assert quiet.unanswered_s("to lima", QUIET_S + 4) == 4.0


def test_one_that_the_packer_gave_up_is_asked_for_again(quiet: Canaries) -> None:
    quiet.look(links(7, 0), QUIET_S)
    lost = canary()
    quiet.asked(lost, QUIET_S)
    assert not quiet.look(links(7, 0), QUIET_S + 1)
    lost.give_up()
    assert quiet.look(links(7, 0), QUIET_S + 2)
    assert quiet.unanswered_s("to lima", QUIET_S + 2) == 0.0


def test_a_link_that_is_gone_from_the_mesh_wants_none(quiet: Canaries) -> None:
    assert not quiet.look([], 1000.0)
    assert quiet.unanswered_s("to lima", 1000.0) == 0.0
