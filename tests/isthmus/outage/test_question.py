"""What an operator may ask about an outage."""

from __future__ import annotations

import pytest

from isthmus.outage.question import (
    LINE_BYTES_PER_S,
    BadQuestion,
    parse_failure,
    parse_lines,
    parse_load,
)
from simulation.outage import Failure
from tests.federation.meshes import mesh_of

MESH = mesh_of("""\
    mesh: acme
    topology: ring
    both: true
    exchanges: [{name: orders}, {name: prices, from: [paris]}, {name: lagos}]
    sites: {paris: {}, new-york: {}, lagos: {}}
""")
RATHER = {
    "paris-tokyo": "there is no site or link 'paris-tokyo': ",
    "lagoss": "did you mean 'lagos'?",
    "paris-": "to the shell a `>` is something else, so put one way of a link in quotes",
    "paris->rome": "there is no site or link 'paris->rome'",
}


@pytest.mark.parametrize(
    ("names", "links", "sites"),
    [
        (["paris-new-york"], {"paris-new-york", "new-york-paris"}, set()),
        (["new-york-paris"], {"paris-new-york", "new-york-paris"}, set()),
        (["paris->new-york"], {"paris-new-york"}, set()),
        (["new-york"], set(), {"new-york"}),
        (["lagos", "paris->lagos"], {"paris-lagos"}, {"lagos"}),
    ],
)
def test_a_link_is_both_ways_unless_an_arrow_says_one(
    names: list[str], links: set[str], sites: set[str]
) -> None:
    assert parse_failure(names, MESH) == Failure(frozenset(links), frozenset(sites))


@pytest.mark.parametrize(("name", "said"), RATHER.items())
def test_unknown_sites_and_links_are_refused_with_the_known_ones(name: str, said: str) -> None:
    with pytest.raises(BadQuestion) as caught:
        parse_failure([name], MESH)
    assert said in str(caught.value)


def test_a_mesh_that_is_all_away_is_no_question() -> None:
    with pytest.raises(BadQuestion, match="every site"):
        parse_failure(["paris", "new-york", "lagos"], MESH)


def test_rates_are_those_of_plan_and_also_bare_and_of_a_site() -> None:
    rates = parse_load(["500", "paris=30/m", "orders@new-york=1k"], MESH)
    assert rates.of("orders", "lagos") == 500
    assert rates.of("orders", "paris") == rates.of("prices", "paris") == 0.5
    assert rates.of("orders", "new-york") == 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lagos=5", "is a site and an exchange"),
        ("rome=5", "there is no exchange 'rome'"),
        ("fast", "is no rate"),
    ],
)
def test_a_rate_that_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadQuestion, match=said):
        parse_load([text], MESH)


def test_lines_carry_a_hundred_megabits_unless_told() -> None:
    lines = parse_lines(["paris-lagos=1MB/s", "paris->new-york=2MB/s"], MESH)
    assert lines.of("lagos-paris") == lines.of("paris-lagos") == 1e6
    assert lines.of("paris-new-york") == 2e6
    assert lines.of("new-york-paris") == LINE_BYTES_PER_S == 100e6 / 8
    assert parse_lines(["3MB/s"], MESH).of("paris-lagos") == 3e6


@pytest.mark.parametrize("text", ["10Mbit/s", "0B/s", "paris-rome=1MB/s"])
def test_a_line_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadQuestion):
        parse_lines([text], MESH)
