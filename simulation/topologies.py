"""Meshes to simulate, by the words of a mesh file."""

from __future__ import annotations

import random
from collections.abc import Sequence

from federation.mesh import Mesh
from federation.mesh_file import parse_mesh
from federation.slots import SlotMap

TOPOLOGIES = ("ring", "one-way-ring", "complete", "tree", "hub", "line", "random")
FEWEST = dict.fromkeys(TOPOLOGIES, 2) | {"ring": 3, "one-way-ring": 3}
"""Least number of sites of each topology."""
DENSE = 8
"""Most sites of a complete graph: a larger one has hundreds of links, and takes minutes."""
LANES = ("urgent", "normal", "bulk")
RETRY = "{max_attempts: 1000, backoff: [1s, 5s]}"
"""Retries for longer than any fault lasts: nothing becomes a dead letter."""


PLACED_ONE_IN = 3
"""Share of the sites of several slots that place an exchange, which else its name would place."""


class NoSuchMesh(ValueError):
    """Impossible mesh; the text lists the possible ones."""


def topologies_for(sites: int) -> list[str]:
    """Return the topologies that so many sites can have."""
    return [
        one for one in TOPOLOGIES if sites >= FEWEST[one] and (one != "complete" or sites <= DENSE)
    ]


def drawn_slots(most: int, sites: int, exchanges: int, seed: int) -> list[SlotMap]:
    """Draw each site's slots by the seed, at most so many; none if no site is to have several."""
    if most == 1:
        return []
    # Seeded by a string, so drawn otherwise than the world, which is seeded by the number.
    chance = random.Random(f"slots {seed}")
    found = []
    for _ in range(sites):
        count, is_placed = chance.randint(1, most), not chance.randrange(PLACED_ONE_IN)
        place = {_exchange(chance.randint(1, exchanges)): chance.randrange(count)}
        found.append(SlotMap(count, place if is_placed and count > 1 else {}))
    return found


def simulated_mesh(
    topology: str,
    sites: int,
    exchanges: int,
    seed: int = 0,
    max_rate: str = "",
    *,
    slots: Sequence[SlotMap] = (),
) -> Mesh:
    """Return a mesh of so many equal sites with so many exchanges. Raise NoSuchMesh.

    `seed` is for `random` only: a tree with links across it, some of them one way. With a
    `max_rate` links have a rate, and lanes, which the exchanges take in turn. `slots` are those of
    each site; none: all have one.
    """
    if sites < 2:
        raise NoSuchMesh(f"a mesh of {sites} sites has no links: ask for 2 or more")
    names = [f"site{number:02}" for number in range(1, sites + 1)]
    made = (
        f"{{name: {_exchange(number)}, retry: {RETRY}{_lane(number) if max_rate else ''}}}"
        for number in range(1, exchanges + 1)
    )
    lines = ["mesh: simulated", f"exchanges: [{', '.join(made)}]"]
    if max_rate:
        lines += [f"lanes: [{', '.join(LANES)}]", f"max_rate: {max_rate}"]
    parents: dict[str, str] = {}
    match topology:
        case "ring":
            lines += ["topology: ring", "both: true"]
        case "one-way-ring":
            lines += ["topology: ring"]
        case "complete":
            lines += ["topology: complete"]
        case "hub":
            lines += [f"topology: {{hub: {names[0]}}}"]
        case "tree" | "line":
            lines += [f"topology: {{tree: {names[0]}}}"]
            for number, name in enumerate(names[1:], 1):
                parents[name] = names[(number - 1) // 2 if topology == "tree" else number - 1]
        case "random":
            links = (f"{{from: {one}, to: {other}}}" for one, other in _random_links(names, seed))
            lines += ["topology: custom", f"links: [{', '.join(links)}]"]
        case _:
            raise NoSuchMesh(f"no topology {topology!r}: one of {', '.join(TOPOLOGIES)}")
    lines += ["sites:"]
    for number, name in enumerate(names):
        keys = [f"parent: {parents[name]}"] if name in parents else []
        keys += _slot_keys(slots[number]) if slots else []
        lines += [f"  {name}: {{{', '.join(keys)}}}"]
    reading = parse_mesh("\n".join(lines).encode())
    if reading.mesh is None:
        raise NoSuchMesh("\n".join(map(str, reading.problems)))
    return reading.mesh


def _exchange(number: int) -> str:
    return f"exchange{number}"


def _slot_keys(slots: SlotMap) -> list[str]:
    """Return the keys of a site in a mesh file for its slots; none where it has one."""
    place = ", ".join(f"{exchange}: {slot}" for exchange, slot in slots.place.items())
    return [] if slots.is_whole else [f"slots: {slots.count}", f"place: {{{place}}}"]


def _lane(number: int) -> str:
    return f", lane: {(*LANES[1:], LANES[0])[(number - 1) % len(LANES)]}"


def _random_links(names: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """Draw directed links by which every site reaches every other."""
    # Seeded by a string, so drawn otherwise than the world, which is seeded by the number.
    chance = random.Random(f"links {seed}")
    found: dict[tuple[str, str], None] = {}
    for number, name in enumerate(names[1:], 1):
        parent = names[chance.randrange(number)]
        found |= dict.fromkeys(((parent, name), (name, parent)))
    for _ in range(chance.randint(0, len(names))):
        one, other = chance.sample(names, 2)
        found |= dict.fromkeys(((one, other), (other, one))[: chance.randint(1, 2)])
    return list(found)
