"""A scenario drawn by its seed: the mesh, the load and the faults as well, not only what happens.

Drawn apart from what the world draws: with its options written out, it is the same world.
"""

from __future__ import annotations

import random

from relay.packing.memory_egress import Returns
from simulation.faults import TOGETHER, Trouble, without_losses
from simulation.load import Load
from simulation.scenario import Scenario
from simulation.topologies import topologies_for

SIZES = (((2, 4), 77), ((5, 8), 22), ((9, 30), 1))
"""Sites from, to; and how many worlds in a hundred. Those of 30 take as long as a hundred of 3."""
RATES = ("512kbit/s", "4Mbit/s", "1Gbit/s")
LANED = 0.15
"""How many of the worlds have lanes, and links with one of these rates."""
SHUFFLED = 0.2
"""Share of the worlds whose brokers hand out again in any order."""
LATER = "freeze"
"""Came when ten thousand worlds had been looked at: drawn apart, those others stay what they are.
"""


def drawn(seed: int) -> Scenario:
    """The scenario of this seed, of any size."""
    # Of a string it draws otherwise than the world, which draws of the number.
    chance = random.Random(f"scenario {seed}")
    (fewest, most), _ = chance.choices(SIZES, [share for _, share in SIZES])[0]
    sites = chance.randint(fewest, most)
    topology = chance.choice(topologies_for(sites))
    messages = chance.choice((10, 30, 100)) if sites <= 4 else chance.choice((3, 10))
    load = Load(messages, chance.choice((5.0, 20.0, 60.0)), chance.choice((40, 150, 1000)))
    kinds = tuple(kind for kind in TOGETHER if kind != LATER)
    if chance.random() < 0.5:
        # A few of them much: what many kinds at once would mend or hide.
        few = chance.sample(kinds, chance.randint(1, 4))
        kinds = tuple(kind for kind in kinds if kind in few)
    apart = random.Random(f"later faults {seed}")
    if apart.random() < 0.25:
        kinds += (LATER,)
    if apart.random() < 0.25:
        kinds = (*without_losses(kinds), "change")
    trouble = Trouble(kinds, chance.choice((0.3, 1.0, 3.0)))
    exchanges = chance.randint(1, 3)
    lanes = random.Random(f"lanes {seed}")
    max_rate = lanes.choice(RATES) if lanes.random() < LANED else ""
    apart = random.Random(f"returns {seed}")
    returns = Returns.SHUFFLED if apart.random() < SHUFFLED else Returns.FIFO
    return Scenario(seed, topology, sites, load, trouble, exchanges, max_rate, returns)
