"""From what difference on neighbours' clocks are a trouble, and how it is told."""

from __future__ import annotations

from typing import Any

import pytest

from federation.mesh import Mesh
from isthmus.clocks import clocks_apart
from tests.federation.meshes import mesh_of


def mesh(window: str) -> Mesh:
    text = f"mesh: m\noutage_window: {window}\ntopology: complete\nexchanges: [{{name: o}}]\n"
    return mesh_of(text + "sites: {a: {}, b: {}}\n")


def link(sender: str, receiver: str, ahead_ms: float | None) -> dict[str, Any]:
    return {"from": sender, "to": receiver, "clock_ahead_ms": ahead_ms}


@pytest.mark.parametrize(
    ("window", "ahead_ms", "is_said"),
    [
        ("72h", 5_000, False),
        ("72h", 5_001, True),
        ("72h", -5_001, True),
        ("72h", None, False),
        ("10s", 1_001, True),  # a tenth of the window
        ("10s", 1_000, False),
    ],
)
def test_a_difference_is_said_above_the_limit(
    window: str, ahead_ms: float | None, is_said: bool
) -> None:
    assert bool(clocks_apart(mesh(window), [link("a", "b", ahead_ms)])) is is_said


def test_two_links_say_it_once_and_who_is_ahead() -> None:
    said = clocks_apart(mesh("72h"), [link("a", "b", 7_000), link("b", "a", -7_100)])
    assert said == ["the clock of b is 7.1 s ahead of a's"]


def test_beyond_the_outage_window_it_says_what_comes_of_it() -> None:
    (said,) = clocks_apart(mesh("1h"), [link("a", "b", -3_600_001)])
    assert said.startswith("the clock of a is 3600.0 s ahead of b's, more than the outage window")
    assert "what b publishes may be quarantined" in said
