"""Faults of a mesh's multicast group; worlds without one are spared."""

from __future__ import annotations

import asyncio
import random

from simulation.forger import Forger
from simulation.world import World

_LOSS = (0.02, 0.3)


async def lose_datagrams(world: World, chance: random.Random) -> None:
    """Lose many datagrams of the group, at each site others."""
    group = world.group
    if group is None:
        return
    group.loss = chance.uniform(*_LOSS)
    world.trace.add("lossy-group", "mesh", f"{group.loss:.0%}")
    await asyncio.sleep(chance.uniform(1.0, 30.0))
    group.loss = group.usual_loss
    world.trace.add("usual", "mesh")


async def deafen(world: World, chance: random.Random) -> None:
    """Let one site hear nothing of the group; others hear that site."""
    group = world.group
    if group is None:
        return
    site = chance.choice(list(world.mesh.sites))
    nodes = {node.name for node in world.nodes_of(site)}
    world.trace.add("deaf", site)
    group.deaf |= nodes
    await asyncio.sleep(chance.uniform(1.0, 30.0))
    group.deaf -= nodes
    world.trace.add("hears", site)


async def take_group_away(world: World, chance: random.Random) -> None:
    """Let nobody join the group, or send into it."""
    group = world.group
    if group is None:
        return
    world.trace.add("no-group", "mesh")
    group.is_there = False
    await asyncio.sleep(chance.uniform(1.0, 40.0))
    group.is_there = True
    world.trace.add("group", "mesh")


async def forge(world: World, chance: random.Random) -> None:
    """Let a member of the group send frames in the names of others, badly signed."""
    group = world.group
    if group is None or not group.is_there or world.mesh.group is None:
        return  # a change of the mesh file may have ended the group
    world.trace.add("forger", "mesh")
    forger = Forger(world.mesh, group, chance)
    await asyncio.sleep(chance.uniform(1.0, 30.0))
    forger.close()
    world.trace.add("forged", "mesh", f"{forger.forged} frames")
