"""What comes where while links or sites are away, as the nodes themselves have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.mesh import Mesh
from federation.slots import SlotMap
from relay.links.forwarding import Forwarding, ForwardingDecision
from simulation.outage import Failure, OutageRecord, PublishedFlow, keys_of, observe_outage
from simulation.topologies import GROUPED, simulated_mesh
from tests.federation.meshes import LINE_OF_THREE, mesh_of

RING = """\
mesh: acme
topology: ring
both: true
exchanges: [{name: orders}]
sites: {a: {}, b: {}, c: {}}
"""
A, B, C = (PublishedFlow("orders", site) for site in "abc")


def watched(mesh: Mesh, *links: str, sites: str = "", kept: float = 1.0) -> OutageRecord:
    flows = [
        PublishedFlow(exchange.name, site)
        for exchange in mesh.exchanges.values()
        for site in mesh.sites
        if exchange.leaves(site)
    ]
    failure = Failure(frozenset(links), frozenset(sites))
    return observe_outage(mesh, flows, failure, dict.fromkeys(mesh.sites, kept))


def test_behind_a_cut_line_each_side_lacks_the_other_and_gets_it_afterwards() -> None:
    seen = watched(mesh_of(LINE_OF_THREE), "b-c", "c-b")
    assert seen.lacking == {"a": {C: 1}, "b": {C: 1}, "c": {A: 1, B: 1}}
    assert seen.lost == {"a": {}, "b": {}, "c": {}}
    assert seen.gaps == ()
    assert seen.ways == {"a": {"c-b", "b-a"}, "b": {"c-b"}, "c": {"a-b", "b-c"}}
    assert seen.before == {"a-b": {A: 1}, "b-a": {B: 1, C: 1}, "b-c": {A: 1, B: 1}, "c-b": {C: 1}}
    assert seen.meanwhile == {"a-b": {A: 1}, "b-a": {B: 1}}
    caught_up = {link: parts for link, parts in seen.caught_up.items() if parts}
    assert caught_up == {"b-a": {C: 1}, "b-c": {A: 1, B: 1}, "c-b": {C: 1}}


def test_slots_do_not_change_what_an_outage_costs() -> None:
    whole = mesh_of(LINE_OF_THREE)
    cut = {name: replace(site, slots=SlotMap(2)) for name, site in whole.sites.items()}
    seen = watched(replace(whole, sites=cut), "b-c", "c-b")
    assert seen == watched(whole, "b-c", "c-b")


def test_a_mesh_with_a_group_is_watched_without_its_keys_as_if_links_brought_all() -> None:
    mesh = simulated_mesh(GROUPED, 3, 1)
    keyless = {
        name: replace(site, private_key="file:nowhere.pem") for name, site in mesh.sites.items()
    }
    cut = [link.name for link in mesh.links if "site01" in link.name]
    seen = watched(replace(mesh, sites=keyless), *cut)
    lacking = {flow.origin for flow in seen.lacking["site01"]}
    assert lacking == {"site02", "site03"}
    assert seen.gaps == ()
    assert not any(seen.lost.values())


def test_one_way_of_a_line_is_a_failure_of_its_own() -> None:
    seen = watched(mesh_of(LINE_OF_THREE), "c-b")
    assert seen.lacking == {"a": {C: 1}, "b": {C: 1}, "c": {}}


def test_a_site_that_is_away_publishes_nothing_and_lacks_all() -> None:
    seen = watched(mesh_of(LINE_OF_THREE), sites="b")
    assert seen.lacking == {"a": {C: 1}, "b": {A: 1, C: 1}, "c": {A: 1}}
    assert not any(seen.lost.values())


def test_a_site_that_is_away_takes_the_links_along_that_meet_at_its_broker() -> None:
    mesh = mesh_of("""\
        mesh: acme
        topology: custom
        both: true
        links: [{from: a, to: b, dial: c}, {from: b, to: c}]
        exchanges: [{name: orders}]
        sites: {a: {}, b: {}, c: {}}
    """)
    seen = watched(mesh, sites="c")
    assert seen.lacking == {"a": {B: 1}, "b": {A: 1}, "c": {A: 1, B: 1}}
    assert seen.meanwhile == {}


def test_where_there_is_a_way_round_nobody_lacks_anything() -> None:
    seen = watched(mesh_of(RING), "a-b", "b-a")
    assert not any(seen.lacking.values())
    assert not any(seen.caught_up.values())
    # Meanwhile what a and b have for each other goes by c.
    assert seen.came["b"] == {A: 1, C: 1}
    assert seen.came_by["b"] == {A: {"a-c", "c-b"}, C: {"c-b"}}
    assert A in seen.meanwhile["c-b"]
    assert B in seen.meanwhile["c-a"]


def test_what_retention_eats_in_the_meantime_never_comes_and_a_link_says_gap() -> None:
    seen = watched(mesh_of(LINE_OF_THREE), "b-c", "c-b", kept=0.3)
    gone = pytest.approx(0.7)
    assert seen.lost == {"a": {C: gone}, "b": {C: gone}, "c": {A: gone, B: gone}}
    assert seen.gaps == (("b", "link b-c"), ("c", "link c-b"))


def test_a_link_says_gap_even_where_all_came_another_way() -> None:
    seen = watched(mesh_of(RING), "a-b", "b-a", kept=0.3)
    assert not any(seen.lost.values())
    assert seen.gaps == (("a", "link a-b"), ("b", "link b-a"))


def test_what_must_be_in_a_neighbours_log_waits_in_egress() -> None:
    seen = watched(mesh_of(LINE_OF_THREE.replace("orders}", "orders, acks: remote}")), "b-c", "c-b")
    assert seen.held == {C: 1}


def test_it_is_the_forwarding_of_the_nodes_that_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forwarding, "decide", lambda self, header: ForwardingDecision.NOT_WANTED)
    seen = watched(mesh_of(LINE_OF_THREE), "b-c")
    assert seen.before == {}


def test_of_what_sites_narrow_there_is_a_message_for_each_kind() -> None:
    mesh = mesh_of("""\
        mesh: acme
        topology: {tree: a}
        exchanges: [{name: prices, from: [a]}]
        sites:
          a: {}
          b: {parent: a, wants: {prices: ["eu.#", "us.*"]}}
          c: {parent: a, wants: {prices: ["asia.*.big.#"]}}
    """)
    assert keys_of(mesh, mesh.exchanges["prices"]) == ["eu", "asia.any.big"]
    flow = PublishedFlow("prices", "a")
    assert watched(mesh, "a-b").lacking == {"a": {}, "b": {flow: 0.5}, "c": {}}


def test_of_a_direct_exchange_patterns_are_the_keys() -> None:
    mesh = mesh_of("""\
        mesh: acme
        topology: {tree: a}
        exchanges: [{name: prices, type: direct, keys: ["eu.#", asia], from: [a]}]
        sites:
          a: {}
          b: {parent: a, wants: {prices: ["eu.#"]}}
          c: {parent: a, wants: {prices: [asia]}}
    """)
    assert keys_of(mesh, mesh.exchanges["prices"]) == ["eu.#", "asia"]
