"""Orders of the page, each as the command of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.page.orders import MOST_IDS, BadOrder, OrderPlace, planned_order
from tests.federation.meshes import TRIANGLE, mesh_of

PLACE = OrderPlace(
    Path("m.yaml"), Path("st"), mesh_of(TRIANGLE), {"2026-11-21": Path("st/audit/d")}
)


def words(order: str, **fields: Any) -> str:
    return " ".join(planned_order(order, fields, PLACE).words)


@pytest.mark.parametrize(
    ("order", "fields", "command"),
    [
        ("pause", {"site": "paris"}, "pause m.yaml --site=paris --state=st"),
        ("pause", {"link": "paris-tokyo"}, "pause m.yaml --link=paris-tokyo --state=st"),
        ("resume", {"site": "paris"}, "resume m.yaml --site=paris --state=st"),
        ("drain", {"site": "paris"}, "drain m.yaml paris --no-wait --state=st"),
        (
            "accept-gap",
            {"site": "paris", "gap": "0a1b"},
            "accept-gap m.yaml paris --gap=0a1b --yes --state=st",
        ),
        (
            "retry",
            {"site": "tokyo", "aside": "dead-letters", "ids": ["1f", "2e"]},
            "dead-letters retry m.yaml --site=tokyo 1f 2e --state=st",
        ),
        (
            "drop",
            {"site": "tokyo", "aside": "quarantine", "all": True},
            "quarantine drop m.yaml --site=tokyo --all --state=st",
        ),
        ("repair", {"audit": "2026-11-21"}, "repair m.yaml --audit=st/audit/d --state=st"),
    ],
)
def test_an_order_is_the_command_of_its_name(
    order: str, fields: dict[str, Any], command: str
) -> None:
    assert words(order, **fields) == command


@pytest.mark.parametrize(
    ("order", "fields", "why"),
    [
        ("", {}, "there is no order ''; there are pause, resume"),
        ("rm", {"site": "paris"}, "there is no order 'rm'"),
        ("pause", {}, "there is no site None"),
        ("pause", {"site": ["paris"]}, "there is no site"),
        ("pause", {"site": "--all"}, "there is no site '--all'"),
        ("pause", {"link": "paris-lima"}, "there is no link 'paris-lima'"),
        ("accept-gap", {"site": "paris"}, "in hexadecimal digits"),
        ("accept-gap", {"site": "paris", "gap": "--yes"}, "in hexadecimal digits"),
        ("retry", {"site": "paris", "aside": "egress", "ids": ["1"]}, "say aside"),
        ("retry", {"site": "paris", "aside": "quarantine"}, "say ids"),
        ("retry", {"site": "paris", "aside": "quarantine", "ids": []}, "say ids"),
        ("drop", {"site": "paris", "aside": "quarantine", "ids": ["--all"]}, "hexadecimal"),
        (
            "drop",
            {"site": "paris", "aside": "quarantine", "ids": ["1"] * (MOST_IDS + 1)},
            "say ids",
        ),
        ("drop", {"site": "paris", "aside": "quarantine", "all": "yes"}, "say ids"),
        ("repair", {"audit": "../.."}, "there is no audit '../..'"),
    ],
)
def test_an_order_that_is_none_is_refused(order: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOrder, match=why.replace("(", r"\(")):
        words(order, **fields)
