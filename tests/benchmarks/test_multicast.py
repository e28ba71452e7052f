"""The row `multicast` loses what it says, links what a shape has, and judges its own table."""

from __future__ import annotations

import math

import pytest

from benchmarks.compare.studies import multicast
from benchmarks.multicast.site_load import Carried, Spread, quantile
from benchmarks.multicast.site_mesh import Shape
from benchmarks.multicast.site_network import lost_part


@pytest.mark.parametrize(("fraction", "part"), [(0.0, 0), (0.01, 10), (0.05, 50), (0.5, 500)])
def test_a_loss_is_told_in_thousandths(fraction: float, part: int) -> None:
    assert lost_part(fraction) == part


@pytest.mark.parametrize("fraction", [0.0005, 1.0, -0.1])
def test_a_loss_that_could_not_be_made_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="no whole number of thousandths"):
        lost_part(fraction)


@pytest.mark.parametrize("sites", [4, 32])
def test_each_shape_has_the_links_that_it_stands_for(sites: int) -> None:
    star, complete, group = (
        set(Shape(kind, sites).links()) for kind in ("star", "complete", "group")
    )
    assert len(complete) == sites * (sites - 1)
    assert star == {link for link in complete if link[0] == "site0"}
    replayers = Shape("group", sites).replayers
    assert "site0" not in replayers, "its broker would send for others on the publisher's line"
    assert group == {link for link in complete if set(link) & set(replayers)}


def test_a_quantile_is_of_the_figures_themselves_or_none() -> None:
    assert quantile([float(one) for one in range(101)], 0.99) == 99.0
    assert quantile([7.0], 0.99) == 7.0
    assert math.isnan(quantile([], 0.5))


def test_a_row_has_the_medians_of_its_rounds_and_all_that_is_missing() -> None:
    spread = Spread(10, 100, 1.0)
    rounds = [
        Carried(1200, 10, 1500, (1.0, 2.0, 3.0), 0),
        Carried(1100, 10, 1700, (4.0, 4.0, 4.0), 2),
        Carried(9000, 10, 1600, (9.0, 9.0, 9.0), 1),
    ]
    row = multicast.row_of(rounds, spread.payload)
    assert (row["publisher"], row["all"], row["p50_ms"], row["missing"]) == (1.2, 1.6, 4.0, 1)


def test_a_table_says_what_each_bar_came_to_and_nothing_of_what_was_not_run() -> None:
    table = {
        "members 32, 5 % lost": {"publisher": 1.5, "all": 1.7},
        "NORM 32, 5 % lost": {"publisher": 1.2, "all": 1.3},
        "members 32, 0 % lost": {"publisher": 1.1, "all": 1.2},
        "group 8, 5 % lost": {"publisher": 1.4, "all": 1.6},
        "star 8, 0 % lost": {"publisher": 7.7, "all": 7.8},
        "group 4, 5 % lost, 100/s": {"p50_ms": 3.0, "p99_ms": 20.0},
        "complete 4, 5 % lost, 100/s": {"p50_ms": 3.0, "p99_ms": 200.0},
    }
    reached = multicast.reached_by(table)
    assert reached.keys() < {bar.what for bar in multicast.STUDY.bars}
    assert reached == pytest.approx(
        {
            "32 sites, 5 % lost: the publisher's bytes over the payload": 1.5,
            "32 sites, 5 % lost: the publisher's bytes over NORM's": 1.25,
            "8 sites, 5 % lost: all sites' bytes over the payload": 1.6,
            "32 sites, 0 % lost: the publisher's bytes over the payload": 1.1,
            multicast.COMPLETE_BYTES: 31.0,
            "100/s, 5 % lost: p99 over complete's": 0.1,
        }
    )
    whole = {
        multicast.case_name(kind, sites, loss, per_second): {
            "publisher": 1.0,
            "all": 1.0,
            "p50_ms": 1.0,
            "p99_ms": 1.0,
        }
        for kind in ("group", "members", "NORM", "star", "complete")
        for sites in (4, 8, 32)
        for loss in multicast.LOSSES
        for per_second in (0.0, 100.0)
    }
    assert multicast.reached_by(whole).keys() == {bar.what for bar in multicast.STUDY.bars}
