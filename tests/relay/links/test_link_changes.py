"""A link whose filter changes under it, as the mesh file does."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from federation.mesh import ForwardingRule
from relay.links.forwarding import Forwarding
from tests.relay.link_logs import PARIS, TOKYO, make_batch
from tests.relay.link_world import TO_TOKYO, LinkWorld

FAR = ("lima", "oslo", "quito")


def reaching(*beyond: str, sites: tuple[str, ...] = ()) -> Forwarding:
    """Tokyo, and what lies beyond it; `sites` are in the mesh and not that way."""
    reachable = frozenset({TOKYO, *beyond})
    return replace(TO_TOKYO, reachable=reachable, sites=reachable | {PARIS, *sites})


def world(forwarding: Forwarding) -> LinkWorld:
    made = LinkWorld(forwarding=forwarding)
    # It asks of a position what the present filter says; until the link has looked again, it is
    # the former one's.
    made.check_position = lambda: None  # type: ignore[method-assign]
    made.start()
    return made


def change(link: LinkWorld, forwarding: Forwarding) -> None:
    assert link.sender is not None
    link.forwarding = forwarding
    link._checked = 0  # other batches are due now
    link._do_sender(link.sender.change(forwarding, link.time.now))


def arrived(link: LinkWorld) -> list[int]:
    return sorted(name.sequence for name, _ in link.target.confirmed)


def append(link: LinkWorld, number: int, *destinations: str) -> None:
    link.source.append(*make_batch(number, destinations=destinations))


def sessions(link: LinkWorld) -> int:
    assert link.sender is not None
    return link.sender.counters.sessions


def test_a_site_that_comes_does_not_end_the_session() -> None:
    link = world(reaching())
    append(link, 0)
    link.run_until_arrived(5)
    change(link, reaching("lima"))
    append(link, 1, "lima")
    link.run_until_arrived(5)
    assert arrived(link) == [0, 1]
    assert sessions(link) == 1


def test_a_batch_for_a_site_of_which_this_node_hears_later_is_not_stranded() -> None:
    # Its origin took up the new file first; this node passed it over, and its position by it.
    link = world(reaching())
    link.source.append(*make_batch(0, incarnation=b"to-lima1", destinations=("lima",)))
    append(link, 0)
    link.run_until_arrived(5)
    link.time.run_until(link.time.now + 30)
    link.crash_sender()
    link.start_sender()
    link.time.run_until(link.time.now + 30)
    assert len(link.target.confirmed) == 1
    change(link, reaching("lima"))
    link.run_until_arrived(60)
    assert len(link.target.confirmed) == 2


def test_what_a_former_filter_kept_back_is_sent_when_the_way_is_another() -> None:
    link = world(reaching(sites=("lima",)))
    append(link, 0, "lima")
    link.source.append(*make_batch(0))
    link.run_until_arrived(5)
    change(link, reaching("lima"))
    link.run_until_arrived(60)
    assert len(link.target.confirmed) == 2
    assert sessions(link) == 2


def test_a_filter_that_wants_less_leaves_the_session_alone() -> None:
    link = world(reaching("lima"))
    append(link, 0, "lima")
    link.run_until_arrived(5)
    change(link, reaching(sites=("lima",)))
    assert sessions(link) == 1


def test_what_is_passed_over_is_counted_however_alike_it_is() -> None:
    link = world(reaching(sites=("lima",)))
    for number in range(100):
        append(link, number, "lima")
    append(link, 0)
    link.run_until_arrived(5)
    assert link.sender is not None
    assert link.sender.counters.skipped == {"no destination that way": 100}
    for number in range(100, 110):
        append(link, number, "lima")
    link.time.run_until(link.time.now + 5)
    assert link.sender.counters.skipped == {"no destination that way": 110}
    assert link.sender.place == link.source.batches[-1].place


@pytest.mark.parametrize("seed", range(40))
def test_whatever_changes_all_that_is_due_in_the_end_arrives_once(seed: int) -> None:
    chance = random.Random(seed)
    link = world(reaching())
    sequences: Counter[tuple[str, ...]] = Counter()
    for _ in range(150):
        destinations = tuple(sorted(chance.sample(FAR, chance.randrange(4))))
        link.source.append(*make_batch(sequences[destinations], destinations=destinations))
        sequences[destinations] += 1
        link.time.run_until(link.time.now + chance.choice([0.0, 0.01, 0.3, 5.0]))
        if chance.random() < 0.2:
            beyond = tuple(chance.sample(FAR, chance.randrange(4)))
            known = tuple(chance.sample(FAR, chance.randrange(4)))
            rule = chance.choice([ForwardingRule.RING] * 4 + [ForwardingRule.COMPLETE])
            change(link, replace(reaching(*beyond, sites=known), rule=rule))
        if chance.random() < 0.1:
            link.crash_sender()
            link.start_sender()
        if chance.random() < 0.05:
            link.crash_receiver()
            link.start_receiver()
    change(link, reaching(*FAR))
    link.run_until_arrived(600)
    names = [name for name, _ in link.target.confirmed]
    assert sorted(names) == sorted(link.due())
    assert len(names) == 150
