"""Notes of `isthmus status` about a multicast group, by the reports of its sites."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from isthmus.group_hearing import (
    LEAST_PULSES,
    UNHEARD_S,
    group_notes,
    group_tables,
    lost_part,
    only_small_come,
    unheard_sites,
)
from isthmus.status import status_of
from relay.admin.admin import Admin
from relay.node.site_folder import ANNOUNCED, site_folder
from tests.federation.mesh_file.test_mesh_file_multicast import GROUP
from tests.federation.meshes import mesh_of
from tests.isthmus.test_status_tables import site, tables_text

SITES = ("paris", "tokyo", "lima")
LONG = UNHEARD_S + 15


def heard(**more: Any) -> dict[str, Any]:
    """Figures of a site that is heard well."""
    return {
        "s_ago": 0.4,
        "sent": 1000,
        "missing": 10,
        "pulses_alone": 0,
        "appended": 50,
        "by_links": 2,
        "linked_s_ago": None,
        **more,
    }


def member(own: str, _others: dict[str, dict[str, Any]] | None = None, **more: Any) -> Any:
    """Report of a site that hears the others well, but as given."""
    group = {
        "away": "",
        "joined_s": 600.0,
        "rate": 2_000_000,
        "full_rate": 2_000_000,
        "appended": 100,
        "by_links": 4,
        "receiving_repaired": 7,
        "heard": {other: heard() for other in SITES if other != own} | (_others or {}),
        **more,
    }
    return site(group=group)


def all_well(**more: Any) -> dict[str, Any]:
    return {name: member(name) for name in SITES} | more


def deaf_to_tokyo(**figures: Any) -> Any:
    return member("lima", {"tokyo": heard(s_ago=LONG, linked_s_ago=3.0, **figures)})


def test_nothing_is_said_where_all_hear_each_other() -> None:
    assert group_notes(all_well()) == []
    assert group_notes({name: site() for name in SITES}) == []


def test_a_publisher_that_is_not_heard_for_30_s_while_links_bring_it_is_named() -> None:
    (note,) = group_notes(all_well(lima=deaf_to_tokyo()))
    assert note.startswith("nothing of tokyo has come by the multicast group to lima for 45 s, and")
    (unheard,) = unheard_sites(all_well(lima=deaf_to_tokyo()), publishing=True)
    assert (unheard.site, unheard.others) == ("lima", ("tokyo",))


def test_who_does_not_hear_the_same_sites_shares_a_line() -> None:
    paris = member("paris", {"tokyo": heard(s_ago=LONG - 5, linked_s_ago=1.0)})
    (note,) = group_notes(all_well(paris=paris, lima=deaf_to_tokyo()))
    assert note.startswith("nothing of tokyo has come by the multicast group to paris, lima for 40")


@pytest.mark.parametrize(
    "figures", [{"s_ago": UNHEARD_S}, {"linked_s_ago": None}, {"linked_s_ago": LONG}]
)
def test_a_site_that_is_heard_or_does_not_publish_is_not_named(figures: dict[str, Any]) -> None:
    lima = member("lima", {"tokyo": heard(s_ago=LONG, linked_s_ago=3.0) | figures})
    assert group_notes(all_well(lima=lima)) == []


def test_of_a_site_that_has_never_come_the_silence_is_that_since_joining() -> None:
    def notes(joined_s: float) -> list[str]:
        never = heard(s_ago=None, linked_s_ago=3.0)
        lima = member("lima", {"tokyo": never}, joined_s=joined_s)
        return group_notes(all_well(lima=lima))

    assert notes(UNHEARD_S) == []
    assert "for 31 s" in notes(UNHEARD_S + 1)[0]


@pytest.mark.parametrize(
    ("tokyo", "is_named"),
    [
        (site(state="down"), False),
        (site(state="unknown"), True),
        (member("tokyo", away="no key"), False),
        (member("tokyo", joined_s=UNHEARD_S), False),
    ],
)
def test_a_site_that_cannot_be_heard_is_no_news(tokyo: Any, is_named: bool) -> None:
    sites = all_well(lima=deaf_to_tokyo(), tokyo=tokyo)
    assert any("has come" in note and "to lima" in note for note in group_notes(sites)) is is_named


def test_a_site_that_is_away_is_named_with_the_reason_and_hears_nobody() -> None:
    away = site(group={"away": "239.192.7.1 is not to be joined: no such device"})
    (note,) = group_notes(all_well(lima=away, tokyo=away))
    assert note.startswith("the multicast group does without tokyo, lima, where links bring all")
    assert "no such device" in note


def test_large_datagrams_that_do_not_come_are_told_from_silence() -> None:
    few_come = {"tokyo": heard(pulses_alone=LEAST_PULSES)}
    sites = all_well(lima=member("lima", few_come))
    assert list(only_small_come(sites)) == [("lima", ["tokyo"])]
    (note,) = group_notes(sites)
    assert note.startswith("only small datagrams of tokyo come to lima")
    fewer = {"tokyo": heard(pulses_alone=LEAST_PULSES - 1)}
    assert group_notes(all_well(lima=member("lima", fewer))) == []


async def test_status_has_the_notes_of_the_group(tmp_path: Path) -> None:
    sites = all_well(lima=deaf_to_tokyo(), oslo=site())
    admin = Admin(lambda: {"pid": os.getpid(), "sites": sites, "links": []})
    port = await admin.start()
    for name in sites:
        folder = site_folder(tmp_path, name)
        folder.mkdir(parents=True)
        (folder / ANNOUNCED).write_text(json.dumps({"pid": os.getpid(), "admin_port": port}))
    told = (await status_of(mesh_of(GROUP), tmp_path)).content
    await admin.close()
    assert set(group_notes(sites)) <= set(told["notes"])
    assert len(group_notes(sites)) == 1


def test_the_loss_is_a_part_of_what_was_sent() -> None:
    assert lost_part(heard()) == 0.01
    assert lost_part(heard(sent=0, missing=0)) == 0.0


def test_the_table_has_a_line_for_each_site_that_fits_a_terminal() -> None:
    slow = member("tokyo", {"lima": heard(s_ago=LONG)}, rate=125_000)
    sites = all_well(tokyo=slow, lima=site(group={"away": "no key"}))
    text = tables_text(sites)
    rows = {
        cells[0]: cells[1:]
        for line in text[text.index("multicast group") :].splitlines()
        if len(cells := [cell.strip() for cell in line.strip("│").split("│")]) == 8
    }
    assert rows["paris"] == ["all 2", "0.4", "1.0 %", "7", "100", "4", "16Mbit/s"]
    assert rows["lima"][0] == "away"
    assert all(word in text for word in ("1 of 2", "not lima", "1Mbit/s", "16Mbit/s"))
    assert "…" not in text


def test_a_mesh_without_a_group_has_no_such_table() -> None:
    assert group_tables({"paris": site()}) == []
