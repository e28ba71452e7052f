"""The hour of figures that the page gathers."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.page.history import EVERY_S, POINTS, Hour


def view(**links: float | None) -> dict[str, Any]:
    return {"sites": {}, "links": {name: {"lag_s": lag} for name, lag in links.items()}}


def test_a_sample_is_kept_every_ten_seconds() -> None:
    hour = Hour()
    for second in range(31):
        hour.note(view(a=float(second)), 1000.0 + second)
    found = hour.of("links", "a")
    assert found["seconds"] == [1000.0, 1010.0, 1020.0, 1030.0]
    assert found["lag_s"] == [0.0, 10.0, 20.0, 30.0]
    assert found["bytes_s"] == [None] * 4


def test_only_the_last_hour_is_kept() -> None:
    hour = Hour()
    for number in range(POINTS + 5):
        hour.note(view(a=float(number)), number * EVERY_S)
    found = hour.of("links", "a")
    assert len(found["seconds"]) == POINTS
    assert (found["lag_s"][0], found["lag_s"][-1]) == (5.0, POINTS + 4.0)


def test_a_link_that_is_gone_is_forgotten_after_an_hour() -> None:
    hour = Hour()
    hour.note(view(a=1.0, b=2.0), 0.0)
    hour.note(view(b=2.0), EVERY_S)
    assert hour.of("links", "a")["lag_s"] == [1.0, None]
    for number in range(2, POINTS + 1):
        hour.note(view(b=2.0), number * EVERY_S)
    with pytest.raises(KeyError):
        hour.of("links", "a")
