"""Rows of pairs and of single points: grouped, they say what all sites by themselves say."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import pytest

from federation.mesh import Exchange, ForwardingRule, Link, Mesh, Site
from federation.planning.pair_figures import PairRow, pair_rows, wanted_by
from federation.planning.routes import routes_of
from federation.planning.single_points import PointRow, all_points, point_rows
from federation.planning.site_classes import SiteGroups, line, site_groups
from tests.federation.graphs import joined


def random_mesh(seed: int) -> Mesh:
    """Ten to fourteen sites, many of which are twins or look alike."""
    drawing = random.Random(seed)
    hubs = [f"h{n}" for n in range(drawing.randint(1, 3))]
    pairs = set(itertools.permutations(hubs, 2))
    sites = list(hubs)
    for number in range(drawing.randint(2, 3)):
        on = drawing.sample(hubs, drawing.randint(1, len(hubs)))
        for leaf in range(drawing.randint(2, 4)):
            name = f"s{number}{leaf}"
            sites.append(name)
            pairs |= {(name, hub) for hub in on} | {(hub, name) for hub in on}
    if drawing.random() < 0.5:
        pairs.discard(drawing.choice(sorted(pairs)))
    exchanges = [
        Exchange("chat"),
        Exchange("up", origins=tuple(sites[len(hubs) :]), destinations=tuple(hubs)),
    ][drawing.randint(0, 1) :]
    part = {site: drawing.choice([1.0, 0.9]) for site in sites}
    return Mesh(
        "m",
        "",
        3600.0,
        drawing.choice([ForwardingRule.RING, ForwardingRule.RING, ForwardingRule.COMPLETE]),
        {site: Site(site, site, availability=part[site]) for site in sites},
        {one.name: one for one in exchanges},
        tuple(Link(a, b, b) for a, b in sorted(pairs)),
    )


def pairs_of(mesh: Mesh, groups: SiteGroups) -> list[PairRow]:
    exchanges = list(mesh.exchanges.values())
    wanted = wanted_by(exchanges, mesh.sites, every=False)
    return pair_rows(routes_of(mesh), exchanges, groups, wanted)


def points_of(mesh: Mesh, groups: SiteGroups) -> list[PointRow]:
    exchanges = list(mesh.exchanges.values())
    wanted = wanted_by(exchanges, mesh.sites, every=False)
    return point_rows(routes_of(mesh), exchanges, groups, wanted)


def shapes(rows: list[PairRow]) -> Counter[object]:
    found: Counter[object] = Counter()
    for row in rows:
        one = row.figures
        found[one and (one.hops, one.link_disjoint, one.site_disjoint)] += row.pairs
    return found


@pytest.mark.parametrize("seed", range(40))
def test_groups_have_the_same_pairs_with_the_same_figures(seed: int) -> None:
    mesh = random_mesh(seed)
    each, grouped = (pairs_of(mesh, site_groups(mesh, each=one)) for one in (True, False))
    wanted = sum(
        any(x.leaves(a) and x.reaches(b) for x in mesh.exchanges.values())
        for a, b in itertools.permutations(mesh.sites, 2)
    )
    assert sum(row.pairs for row in each) == wanted
    assert shapes(each) == shapes(grouped)
    parts = [row.figures.availability.part for row in each if row.figures]
    spans = [(r.figures.availability.part, r.best.part) for r in grouped if r.figures and r.best]
    assert min(parts) == pytest.approx(min(low for low, _ in spans))
    assert max(parts) == pytest.approx(max(high for _, high in spans))


@pytest.mark.parametrize("seed", range(40))
def test_groups_have_the_same_single_points(seed: int) -> None:
    mesh = random_mesh(seed)
    each, grouped = (points_of(mesh, site_groups(mesh, each=one)) for one in (True, False))
    assert all(row.count == 1 for row in each)

    def told(rows: list[PointRow]) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        for row in rows:
            counts[len(row.groups), row.pairs] += row.count
        return counts

    assert told(each) == told(grouped)
    exchanges = list(mesh.exchanges.values())
    wanted = wanted_by(exchanges, mesh.sites, every=False)
    found = all_points(routes_of(mesh), exchanges, site_groups(mesh), wanted)
    assert {(site,) for site in found.sites} | set(found.lines) == {
        row.example if len(row.groups) == 1 else line((row.example[0], row.example[1]))
        for row in each
    }


@pytest.mark.parametrize("seed", range(10))
def test_a_single_point_separates_as_many_pairs_as_it_says(seed: int) -> None:
    mesh = replace(random_mesh(seed), rule=ForwardingRule.RING)
    routes = routes_of(mesh)
    wanted = wanted_by(list(mesh.exchanges.values()), mesh.sites, every=False)
    for row in points_of(mesh, site_groups(mesh)):
        down = {row.example[0]} if len(row.groups) == 1 else {row.example, row.example[::-1]}
        cut = sum(
            wanted(a, b) and joined(routes, a, b, ()) and not joined(routes, a, b, down)
            for a, b in itertools.permutations(mesh.sites, 2)
            if not down.intersection((a, b))
        )
        assert cut == row.pairs
