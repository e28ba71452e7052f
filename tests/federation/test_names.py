"""Every name on a broker: distinct, prefixed, short enough; and the patterns made of them."""

from __future__ import annotations

import re

import pytest

from federation.mesh import Link
from federation.names import Names, NameTooLong, matching

NAMES = Names("acme")
LINKS = [Link(a, b, b) for a in ("a", "a-b", "b", "b-a") for b in ("a", "a-b", "b", "b-a")]


def test_every_name_begins_with_isthmus_and_the_mesh() -> None:
    assert NAMES.egress("orders") == "isthmus.acme.egress.orders"
    assert NAMES.log == "isthmus.acme.log"
    assert NAMES.dead_letters == "isthmus.acme.dead"
    assert NAMES.link_user("tokyo") == "isthmus.acme.link.tokyo"
    assert NAMES.egress("x").startswith(NAMES.egress_prefix)


def test_no_two_names_are_the_same() -> None:
    made = [NAMES.log, NAMES.packer_lock, NAMES.deliverer_lock, NAMES.dead_letters]
    made += [NAMES.quarantine, NAMES.egress("a"), NAMES.egress("dead"), NAMES.egress("log")]
    for link in LINKS:
        made += [NAMES.link_data(link), NAMES.link_acks(link)]
        made += [NAMES.receiver_queue(link), NAMES.sender_queue(link)]
    assert len(set(made)) == len(made)
    users = [NAMES.relay_user("a"), NAMES.link_user("a"), NAMES.application_user("a")]
    assert len({*users, NAMES.admin_user("a"), NAMES.relay_user("b")}) == 5


def test_the_queues_of_a_link_begin_with_the_prefix_of_the_site_that_holds_them() -> None:
    for link in LINKS:
        assert NAMES.receiver_queue(link).startswith(NAMES.link_queue_prefix(link.receiver))
        assert NAMES.sender_queue(link).startswith(NAMES.link_queue_prefix(link.sender))


def test_the_prefix_of_one_site_covers_nothing_of_another() -> None:
    for link in LINKS:
        for site in ("a", "a-b", "b", "b-a"):
            prefix = NAMES.link_queue_prefix(site)
            assert NAMES.receiver_queue(link).startswith(prefix) == (link.receiver == site)
            assert NAMES.sender_queue(link).startswith(prefix) == (link.sender == site)
            assert not NAMES.link_data(link).startswith(prefix)
            assert not NAMES.link_acks(link).startswith(prefix)


def test_a_name_longer_than_a_broker_takes_is_refused_with_what_to_shorten() -> None:
    assert NAMES.egress("é" * 117)
    with pytest.raises(NameTooLong) as caught:
        NAMES.egress("é" * 118)
    assert caught.value.length == 256
    assert "shorten the name of the exchange" in str(caught.value)


def test_the_longest_sites_and_mesh_still_make_names_that_fit() -> None:
    longest = "s" * 63
    names = Names("m" * 63)
    link = Link(longest, longest, longest)
    for name in (names.link_data(link), names.receiver_queue(link), names.sender_queue(link)):
        assert len(name) <= 255


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("isthmus.acme.data.a.b", True),
        ("isthmus.acme.link.a.x", True),
        ("isthmus.acme.link.a.", True),
        ("isthmus-acme.data.a.b", False),
        ("isthmus.acme.data.a.bb", False),
        ("xisthmus.acme.data.a.b", False),
        ("isthmus.acme.link.ab.x", False),
        ("", False),
        ("amq.default", False),
    ],
)
def test_a_pattern_matches_just_what_it_was_made_of(name: str, matches: bool) -> None:
    pattern = matching(["isthmus.acme.data.a.b"], ["isthmus.acme.link.a."])
    assert (re.search(pattern, name) is not None) == matches


def test_a_pattern_made_of_nothing_matches_no_name() -> None:
    assert re.search(matching(), "a") is None
    assert re.search(matching(["a+(b)"]), "a+(b)") is not None
    assert re.search(matching(["a+(b)"]), "aab") is None
