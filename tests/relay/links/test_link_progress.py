"""How far a link has got, and what of it is kept when."""

from __future__ import annotations

from federation.mesh import ForwardingRule
from relay.batches.batch import Place
from relay.links.forwarding import FilterSeen, Forwarding, seen_with
from relay.links.position import Beginning, LinkPosition, Sample
from relay.links.sender.progress import LinkProgress, PendingSave
from relay.links.sender.session import LinkWindow
from relay.links.settings import LinkSettings
from tests.log_batches import batch, batch_name

SEEN = FilterSeen(ForwardingRule.RING, "paris", "tokyo", frozenset({"tokyo"}), frozenset())
SETTINGS = LinkSettings(save_s=1.0, sample_s=60.0, lookback_s=600.0)


def place(number: int) -> Place:
    return Place(number, batch_name(number))


def position(at: Place | None, *history: Sample) -> LinkPosition:
    return LinkPosition(b"log", b"run", SEEN, at, history or (Sample(0.0, at),))


class Link:
    """A session that begins at a place, over a log that is certain up to `certain`."""

    def __init__(self, began: Place | None = None) -> None:
        self.certain: Place | None = None
        self.window = LinkWindow(began)
        self.progress = LinkProgress(None, self._safe_place, SETTINGS)
        self.progress.session_begins(Beginning(position(began), ""), self.window)

    def _safe_place(self, reached: Place | None) -> Place | None:
        if self.certain is None or reached is None:
            return None
        return min(self.certain, reached, key=lambda one: one.offset)

    def reach(self, number: int, now: float) -> None:
        header, data = batch(number)
        sent = self.window.send(place(number), header, len(data), now)
        done = self.window.acknowledge(sent)
        assert done is not None
        self.progress.acknowledged(done.headers, now)
        self.progress.moved(now)

    def kept(self, now: float, *, at_once: bool = False) -> tuple[Place | None, list[int]] | None:
        keep: PendingSave | None = self.progress.pending_save(now, at_once)
        if keep is None:
            return None
        return keep.position.place, [header.name.sequence for header in keep.linked]


def test_a_link_that_never_had_a_session_has_no_position_and_nothing_to_keep() -> None:
    progress = LinkProgress(None, lambda reached: reached, SETTINGS)
    assert progress.position is None
    assert progress.place is None
    assert progress.save_due is None
    assert progress.pending_save(1000.0, at_once=True) is None


def test_what_is_kept_never_passes_what_the_log_is_certain_of() -> None:
    link = Link(place(0))
    link.certain = place(1)
    link.reach(2, 10.0)
    assert link.progress.place == place(2)
    assert link.kept(10.0) == (place(1), [2])
    # It will be certain of more soon, so it is looked at again.
    assert link.progress.save_due == 11.0
    link.certain = place(9)
    assert link.kept(11.0) == (place(2), [])
    assert link.progress.save_due is None


def test_a_position_is_kept_once_a_second_and_at_once_at_the_end() -> None:
    link = Link(place(0))
    link.certain = place(99)
    link.reach(1, 10.0)
    assert link.kept(10.0) == (place(1), [1])
    link.reach(2, 10.5)
    assert link.kept(10.5) is None
    assert link.kept(10.6, at_once=True) == (place(2), [2])


def test_while_the_log_is_certain_of_nothing_the_position_stays_what_it_was() -> None:
    link = Link(place(3))
    link.reach(4, 10.0)
    assert link.progress.position == position(place(3))


def test_after_a_session_only_what_was_certain_counts() -> None:
    link = Link(place(0))
    link.certain = place(1)
    link.reach(2, 10.0)
    link.progress.session_ends()
    assert link.progress.place == place(1)


def test_a_link_sent_back_goes_on_from_its_last_sample() -> None:
    link = Link(place(0))
    link.certain = place(99)
    link.reach(1, 100.0)  # sampled: a minute after the session's first
    link.reach(2, 110.0)
    link.progress.back_to_certain()
    assert link.window.place == place(1)
    assert link.kept(110.0, at_once=True) == (place(1), [1, 2])


def test_a_link_whose_place_is_lost_begins_at_the_log_s_start() -> None:
    link = Link(place(5))
    link.certain = place(99)
    link.reach(6, 10.0)
    link.progress.back_to_start(20.0)
    assert link.progress.place is None
    assert link.progress.position == position(None, Sample(20.0, None))


def test_a_filter_that_may_want_what_was_passed_over_ends_what_the_position_says() -> None:
    link = Link()
    link.certain = place(9)
    link.reach(1, 0.0)
    mesh = frozenset({"paris", "tokyo", "lima"})
    grown = Forwarding(ForwardingRule.RING, "paris", "tokyo", frozenset({"tokyo", "lima"}), mesh)
    assert link.progress.goes_on_with(grown)  # lima was in no batch so far
    kept = link.progress.pending_save(1.0, at_once=True)
    assert kept is not None
    assert kept.position.seen == seen_with(grown)


def test_a_batch_passed_over_for_a_site_that_comes_later_makes_the_link_look_again() -> None:
    # Its origin knew the new file before this node did.
    link = Link()
    link.certain = place(9)
    link.progress.passed_over_for({"lima"})
    link.reach(1, 0.0)
    grown = Forwarding(
        ForwardingRule.RING, "paris", "tokyo", frozenset({"tokyo", "lima"}), frozenset({"lima"})
    )
    assert not link.progress.goes_on_with(grown)
    kept = link.progress.pending_save(1.0, at_once=True)
    assert kept is not None
    assert kept.position.seen.stranded_by(grown)
