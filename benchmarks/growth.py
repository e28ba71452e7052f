"""Cost of a growing mesh: copies of a batch, and memory a site, in the simulation.

    python -m benchmarks.growth                          trees of 25, 50, 100, 200 sites
    python -m benchmarks.growth --topology one-way-ring --sites 50,100
    python -m benchmarks.growth --topology ring --messages 5

Each size is a process of its own, one after the other. Every site begins with two marks, which go
everywhere: so there is something of each origin at each site, without a message as well. Memory is
that of the whole process, brokers' logs included, less that of the smallest mesh.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
from itertools import pairwise

from simulation.growth import Grown, grow
from simulation.topologies import FEWEST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="tree")
    parser.add_argument("--sites", default="25,50,100,200")
    parser.add_argument("--messages", type=int, default=0, help="published at each site")
    options = parser.parse_args()
    sizes = sorted({FEWEST[options.topology], *map(int, options.sites.split(","))})
    grown: list[Grown] = []
    print("  sites  links  batches      sent  /(N-1)     MB  kB/site")
    for sites in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(logging.disable)  # nodes say that they were killed, in the end
            grown.append(pool.apply(grow, (options.topology, sites, options.messages)))
        one = grown[-1]
        share = one.sent / one.batches / (sites - 1)
        each = (one.peak_mb - grown[0].peak_mb) * 1024 / sites
        print(
            f"{sites:>6} {one.links:>6} {one.batches:>8} {one.sent:>9} {share:>7.3f}"
            f" {one.peak_mb:>6} {each:>8.0f}",
            flush=True,
        )
    base = grown[0].peak_mb
    for former, one in pairwise(grown[1:]):
        # Linear a site in origins: quadratic in all.
        by = ((one.peak_mb - base) / one.sites) / ((former.peak_mb - base) / former.sites)
        print(f"{former.sites} to {one.sites} sites: memory a site x {by:.2f}")


if __name__ == "__main__":
    main()
