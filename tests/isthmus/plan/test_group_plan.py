"""A mesh with a multicast group in `isthmus plan`."""

from __future__ import annotations

from typing import Any

import pytest

from federation.mesh import Mesh
from federation.multicast import why_by_links
from federation.planning.uplink_copies import UplinkCopies, uplink_copies
from isthmus.plan.drawing import as_dot, as_svg
from isthmus.plan.picture import picture_of
from isthmus.plan.report import plan_of
from tests.federation.mesh_file.test_mesh_file_multicast import GROUP, exchanges, with_keys
from tests.federation.meshes import LINE_OF_THREE, mesh_of
from tests.isthmus.plan.test_plan import cells, text_of
from tests.signed_batches import public_key

OSLO_LISTENS_NOT = with_keys(GROUP, "oslo", "multicast: none")


def copies(text: str) -> dict[str, UplinkCopies]:
    return dict(uplink_copies(mesh_of(text)))


def of(own: tuple[int, int, int], passed: tuple[int, int] = (0, 0)) -> UplinkCopies:
    """Copies of a site: with the group, by links, in a complete graph; then of those passed on."""
    return UplinkCopies(*own, *passed)


def test_a_byte_leaves_its_site_once_instead_of_once_for_each_other() -> None:
    found = copies(GROUP)
    assert found.pop("paris") == of((1, 3, 3), (0, 2))
    assert set(found.values()) == {of((1, 1, 3))}


def test_by_links_a_site_sends_to_each_replayer_and_each_may_pass_it_on() -> None:
    found = copies(GROUP.replace("[paris]", "[tokyo, paris]"))
    assert found["tokyo"] == found["paris"] == of((1, 3, 3), (0, 2))
    assert found["oslo"] == found["lima"] == of((1, 2, 3))


def test_a_site_that_is_no_member_sends_and_gets_all_by_links() -> None:
    found = copies(OSLO_LISTENS_NOT)
    assert found["paris"] == of((2, 3, 3), (1, 2))
    assert found["tokyo"] == of((1, 1, 3))
    assert found["oslo"] == of((1, 1, 3)), "one replayer"


def test_only_what_an_exchange_sends_counts() -> None:
    found = copies(exchanges("[{name: prices, from: [tokyo], to: [lima, oslo, paris]}]"))
    assert found["tokyo"] == of((1, 1, 3))
    assert found["lima"] == of((0, 0, 0))
    assert found["paris"] == of((0, 0, 0), (0, 2))
    assert copies(exchanges("[{name: prices, to: [lima, oslo]}]")) == {}
    assert copies(LINE_OF_THREE) == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (GROUP, ""),
        (with_keys(GROUP, "oslo", "wants: {orders: ['a.#']}"), "oslo narrows it by `wants`"),
        (exchanges("[{name: orders, never_via: [oslo]}]"), "it has `never_via`"),
        (
            exchanges("[{name: orders, to: [oslo, lima]}]"),
            "it is for fewer than 3 sites of the group",
        ),
    ],
)
def test_why_an_exchange_goes_by_links_is_told(text: str, why: str) -> None:
    mesh = mesh_of(text)
    assert why_by_links(mesh, mesh.exchanges["orders"]) == why
    (told,) = plan_of(mesh)["exchanges"]
    assert told["over_group"] == {"goes": not why, "why": why}
    assert (f"by links: {why}" if why else "over the group") in text_of(mesh)


def test_the_group_has_its_lines_in_the_plan() -> None:
    text = text_of(mesh_of(OSLO_LISTENS_NOT))
    assert (
        "multicast group 239.192.7.1, port 7400, 16Mbit/s of each site; members: every site but"
        " oslo; replayers, by rank: paris; the others get all by links" in " ".join(text.split())
    )
    assert cells(text, "paris ")[:6] == ["paris", "2", "3", "3", "1", "2"]
    assert "Ways and availability are of the links alone" in text


def test_a_group_over_which_nothing_goes_is_told_so() -> None:
    assert "no exchange goes over the group" in text_of(
        mesh_of(exchanges("[{name: orders, to: [oslo, lima]}]"))
    )


def test_the_ways_are_those_of_the_links() -> None:
    def ways(mesh: Mesh) -> Any:
        return [routes["pairs"] for routes in plan_of(mesh)["routes"]]

    hub = GROUP.replace(
        GROUP[GROUP.index("  multicast:") : GROUP.index("signing")], "  hub: paris\n"
    )
    assert ways(mesh_of(GROUP)) == ways(mesh_of(hub))


def test_a_mesh_without_a_group_says_nothing_of_it() -> None:
    told = plan_of(mesh_of(LINE_OF_THREE))
    assert told["multicast"] is None
    assert told["exchanges"][0]["over_group"] is None
    assert "group" not in text_of(mesh_of(LINE_OF_THREE))


def test_members_are_marked_in_the_drawings() -> None:
    picture = picture_of(mesh_of(OSLO_LISTENS_NOT))
    assert {spot.name for spot in picture.spots if spot.in_group} == {"paris", "tokyo", "lima"}
    about = {spot.name: spot.about for spot in picture.spots}
    assert about["paris"].endswith("in the multicast group")
    assert about["oslo"].endswith("not in the multicast group")
    svg, dot = as_svg(picture), as_dot(picture)
    assert "green: hears the multicast group 239.192.7.1 as well" in svg
    assert svg.count('class="member"') == 2
    assert svg.count('class="only member"') == 1, "the only replayer"
    assert dot.count("peripheries=2") == 3
    plain = picture_of(mesh_of(LINE_OF_THREE))
    assert "multicast" not in as_svg(plain) + as_dot(plain)


def test_a_crowd_is_marked_if_all_of_it_hears_the_group() -> None:
    text = GROUP + "".join(
        f"  s{n}: {{public_key: {public_key(f's{n}')}, private_key: file:s{n}.pem}}\n"
        for n in range(6)
    )
    (crowd,) = [spot for spot in picture_of(mesh_of(text)).spots if spot.sites > 1]
    assert crowd.in_group
    text = with_keys(text, "s3", "multicast: none")
    spots = picture_of(mesh_of(text)).spots
    assert not any(spot.in_group for spot in spots if spot.sites > 1)
