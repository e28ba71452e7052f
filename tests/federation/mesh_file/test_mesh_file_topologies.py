"""Trees and hubs: the links that they make, and what is refused of them."""

from __future__ import annotations

import pytest

from federation.mesh import ForwardingRule, Link
from tests.federation.marked import the_error
from tests.federation.meshes import errors_of, mesh_of

TREE = """\
mesh: acme
topology: {tree: head}
sites: {head: {}, north: {parent: head}, oslo: {parent: north}, turku: {parent: north}}
"""
HUB = """\
mesh: acme
topology: {hub: head}
sites: {head: {}, oslo: {}, turku: {}}
"""
HUBS = """\
mesh: acme
topology: {hub: {center: [east, west]}}
sites: {east: {tags: [middle]}, west: {tags: [middle]}, oslo: {hub: east}, cork: {hub: [middle]}}
"""


def meetings(text: str) -> dict[tuple[str, str], str]:
    return {(link.sender, link.receiver): link.meeting for link in mesh_of(text).links}


def test_in_a_tree_each_site_and_its_parent_meet_at_the_parents_broker_both_ways() -> None:
    assert meetings(TREE) == {
        ("head", "north"): "head",
        ("north", "head"): "head",
        ("north", "oslo"): "north",
        ("oslo", "north"): "north",
        ("north", "turku"): "north",
        ("turku", "north"): "north",
    }
    assert mesh_of(TREE).rule is ForwardingRule.RING


@pytest.mark.parametrize(
    "topology",
    [
        "topology: {tree: {root: head}}",
        "topology: {tree: {}}",
        "topology: {tree: }",
        "topology: tree",
        "topology: {tree: {children: {north: [turku]}}}",
    ],
)
def test_a_tree_can_be_said_in_several_ways(topology: str) -> None:
    text = TREE.replace("topology: {tree: head}", topology)
    if "children" in topology:
        text = text.replace("turku: {parent: north}", "turku: {}")
    assert mesh_of(text).revision == mesh_of(TREE).revision


def test_a_mapping_of_children_says_all_of_a_tree() -> None:
    text = """\
    mesh: acme
    topology: {tree: {children: {head: [north], north: [oslo, turku]}}}
    sites: {head: {}, north: {}, oslo: {}, turku: {}}
    """
    assert mesh_of(text).revision == mesh_of(TREE).revision


@pytest.mark.parametrize("topology", ["{hub: head}", "{hub: [head]}", "{hub: {center: head}}"])
def test_each_site_dials_the_hub(topology: str) -> None:
    text = HUB.replace("{hub: head}", topology)
    assert meetings(text) == {
        ("head", "oslo"): "head",
        ("oslo", "head"): "head",
        ("head", "turku"): "head",
        ("turku", "head"): "head",
    }


def test_several_hubs_are_linked_with_each_other_and_sites_say_which_is_theirs() -> None:
    assert meetings(HUBS) == {
        ("east", "west"): "west",
        ("west", "east"): "east",
        ("east", "oslo"): "east",
        ("oslo", "east"): "east",
        ("east", "cork"): "east",
        ("cork", "east"): "east",
        ("west", "cork"): "west",
        ("cork", "west"): "west",
    }


def test_the_hubs_can_be_named_by_their_tag() -> None:
    assert mesh_of(HUBS.replace("[east, west]", "middle")).revision == mesh_of(HUBS).revision


def test_an_entry_of_links_adjusts_one_of_them_and_leaves_where_it_meets() -> None:
    text = HUB + "links: [{from: oslo, to: head, both: true, via: 'gw:5671', availability: 0.9}]\n"
    links = {link.name: link for link in mesh_of(text).links}
    assert links["oslo-head"] == Link("oslo", "head", "head", "gw:5671", 0.9)
    assert links["head-oslo"] == Link("head", "oslo", "head", "gw:5671", 0.9)
    assert links["turku-head"].availability == 0.99


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (TREE.replace("tree: head", "tree: ^hed"), "there is no site `hed`; did you mean `head`?"),
        (TREE.replace("parent: head", "parent: ^heat"), "there is no site `heat`; did you mean"),
        (TREE.replace("{parent: head}", "{parent: ^north}"), "`north` hangs on itself; name anot"),
        (
            TREE.replace("turku: {parent: north}", "^turku: {}"),
            "`turku` has no parent; add parent: head, or another site",
        ),
        (
            TREE.replace("{tree: head}", "^tree").replace("turku: {parent: north}", "turku: {}"),
            "`head`, `turku` have no parent, so it is not known which is the root; write topology",
        ),
        (
            TREE.replace("tree: head", "tree: {root: ^head}").replace(
                "{head: {}", "{head: {parent: oslo}"
            ),
            "the root `head` hangs on `oslo`; take its parent out, or name another root",
        ),
        (
            TREE.replace("oslo: {parent: north}", "oslo: {parent: ^turku}").replace(
                "turku: {parent: north}", "turku: {parent: oslo}"
            ),
            "`oslo` hangs on `turku` hangs on `oslo`: no tree; hang one of them on a site nearer",
        ),
        (
            TREE.replace("tree: head", "tree: {children: {head: [^oslo]}}"),
            "`oslo` hangs on `north` already; a site of a tree has one parent: keep one",
        ),
        (TREE.replace("tree: head", "tree: {children: {^hed: []}}"), "there is no site `hed`; did"),
        (TREE.replace("tree: head", "tree: {children: {head: [^x]}}"), "there is no site `x`; the"),
        (TREE.replace("tree: head", "tree: {^head: [north]}"), "unknown key `head`; the keys here"),
        (TREE + "both: ^false\n", "in a tree links go both ways; take `both` out"),
        ("mesh: m\ntopology: ^tree\nsites: {a: {}}\n", "a tree takes two sites; add a site"),
        (
            TREE.replace("{tree: head}", "ring")
            .replace("north: {parent", "north: {^parent", 1)
            .replace("oslo: {parent: north}", "oslo: {}")
            .replace("turku: {parent: north}", "turku: {}"),
            "`parent` means something in topology: tree only; take it out, or write topology: {tr",
        ),
        (HUB.replace("hub: head", "hub: ^hed"), "there is no site `hed`; did you mean `head`?"),
        (HUB.replace("{hub: head}", "^hub"), "names no hub; write topology: {hub: SITE}"),
        (HUB.replace("hub: head", "hub: {^centre: head}"), "unknown key `centre`; did you mean `c"),
        (
            HUB.replace("head}", "^[head, oslo, turku]}")
            .replace("^[", "[")
            .replace("{hub", "^{hub"),
            "a hub without other sites; add a site, or write topology: complete",
        ),
        (HUB.replace("oslo: {}", "oslo: {hub: ^turku}"), "`turku` is no hub; name one of `head`"),
        (HUB.replace("oslo: {}", "oslo: {hub: ^hed}"), "there is no site `hed`; did you mean"),
        (HUB.replace("{head: {}", "{head: {hub: ^oslo}"), "`head` is a hub itself; take `hub` out"),
        (
            HUBS.replace("oslo: {hub: east}", "^oslo: {}"),
            "`oslo` does not say which of the 2 hubs it hangs on; add hub: east, or several as [ea",
        ),
        (HUBS.replace("[middle]}}", "[^midle]}}"), "there is no site or tag `midle`; did you mean"),
        (HUB + "both: ^false\n", "in a hub mesh links go both ways; take `both` out"),
        (
            HUB + "links: [^{from: oslo, to: turku}]\n",
            "the topology has no link from `oslo` to `turku`; take it out, or write topology: cust",
        ),
        # What newcomers write first
        (HUB.replace("{hub: head}", "^hub-and-spoke"), "is not known here; did you mean `hub`?"),
        (HUB.replace("{hub: head}", "^full-mesh"), "is not known here; did you mean `complete`?"),
        (
            HUB.replace("{hub: head}", "^[ring]"),
            "write topology: ring, complete, custom, {tree",
        ),
        (HUB.replace("{hub: head}", "{^type: hub, hub: head}"), "`type`; write topology: ring, "),
        (HUB.replace("{hub: head}", "{ring: ^both}"), "write topology: ring, or {ring: {both: tru"),
        (HUB.replace("topology: {hub: head}", "topology: ring\n^hub: head"), "unknown key `hub`"),
    ],
)
def test_what_is_wrong_with_a_shape_is_told_at_its_place(marked: str, said: str) -> None:
    assert said in the_error(marked)


def test_a_shape_that_is_wrong_is_not_also_told_by_what_it_leaves_out_of_reach() -> None:
    text = TREE.replace("parent: head", "parent: heat") + "exchanges: [{name: o}]\n"
    assert len(errors_of(text)) == 1
