"""Meshes to simulate, by the words of a mesh file."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from federation.mesh import LargeRule, Mesh
from federation.mesh_file import parse_mesh
from federation.multicast import LEAST_SITES
from federation.slots import SlotMap
from simulation.site_keys import GROUP_KEY_AT, private_key_at, public_key_of

TOPOLOGIES = ("ring", "one-way-ring", "complete", "tree", "hub", "line", "random")
GROUPED = "multicast"
"""Topology with a multicast group; no seed that drew another one before draws this instead."""
FEWEST = dict.fromkeys(TOPOLOGIES, 2) | {"ring": 3, "one-way-ring": 3, GROUPED: LEAST_SITES}
"""Least number of sites of each topology."""
DENSE = 8
"""Most sites of a complete graph: a larger one has hundreds of links, and takes minutes."""
LANES = ("urgent", "normal", "bulk")
RETRY = "{max_attempts: 1000, backoff: [1s, 5s]}"
"""Retries for longer than any fault lasts: nothing becomes a dead letter."""


PLACED_ONE_IN = 3
"""Share of the sites of several slots that place an exchange, which else its name would place."""
MOST_REPLAYERS = 4
OUTSIDE_ONE_IN = 3
"""Share of the groups that a site is not a member of, where enough others are."""
GROUP_RATES = ("125KB/s", "2500KB/s", "125MB/s")


class NoSuchMesh(ValueError):
    """Impossible mesh; the text lists the possible ones."""


def topologies_for(sites: int) -> list[str]:
    """Return the topologies without a group that so many sites can have."""
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
    signed: bool = False,
    best_effort: int = 0,
) -> Mesh:
    """Return a mesh of so many equal sites with so many exchanges. Raise NoSuchMesh.

    `seed` is for `random`, a tree with links across it, some of them one way, and `multicast`, the
    replayers of a group. With a `max_rate` links have a rate, and lanes, which the exchanges take
    in turn. `slots` are those of each site; none: all have one. The sites of a group sign, and
    others if `signed`; the first three of a group have one slot. The order of the first
    `best_effort` exchanges is best effort.
    """
    if sites < 2:
        raise NoSuchMesh(f"a mesh of {sites} sites has no links: ask for 2 or more")
    names = [f"site{number:02}" for number in range(1, sites + 1)]
    made = (
        f"{{name: {_exchange(number)}, retry: {RETRY}{_lane(number) if max_rate else ''}"
        f"{', order: best_effort' if number <= best_effort else ''}}}"
        for number in range(1, exchanges + 1)
    )
    lines = ["mesh: simulated", f"exchanges: [{', '.join(made)}]"]
    if max_rate:
        lines += [f"lanes: [{', '.join(LANES)}]", f"max_rate: {max_rate}"]
    parents: dict[str, str] = {}
    outside: list[str] = []
    if topology == GROUPED:
        slots = [one if n >= LEAST_SITES else SlotMap() for n, one in enumerate(slots)]
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
        case "multicast":
            outside = [name for name, one in zip(names, slots, strict=False) if not one.is_whole]
            group, more = _drawn_group([one for one in names if one not in outside], seed)
            lines += [f"topology: {{multicast: {group}}}"]
            outside += more
        case _:
            raise NoSuchMesh(f"no topology {topology!r}: one of {', '.join(FEWEST)}")
    is_signed = signed or topology == GROUPED
    if is_signed:
        lines += ["signing: ed25519", "batch_format: 2"]
    lines += ["sites:"]
    for number, name in enumerate(names):
        keys = [f"parent: {parents[name]}"] if name in parents else []
        keys += _slot_keys(slots[number]) if slots else []
        keys += ["multicast: none"] if name in outside else []
        if is_signed:
            keys += [f"public_key: {public_key_of(name)}", f"private_key: {private_key_at(name)}"]
        lines += [f"  {name}: {{{', '.join(keys)}}}"]
    reading = parse_mesh("\n".join(lines).encode())
    if reading.mesh is None:
        raise NoSuchMesh("\n".join(map(str, reading.problems)))
    return reading.mesh


def with_partitions(mesh: Mesh, partitions: int) -> Mesh:
    """Return the mesh with so many partitions of each exchange, which are placed by themselves."""
    if partitions == 1:
        return mesh
    return replace(
        mesh,
        exchanges={
            name: replace(exchange, partitions=partitions)
            for name, exchange in mesh.exchanges.items()
        },
        sites={
            name: replace(site, slots=SlotMap(site.slots.count))
            for name, site in mesh.sites.items()
        },
    )


def with_references(mesh: Mesh, seed: int) -> Mesh:
    """Return the mesh with some exchanges, drawn by the seed, whose large messages come without
    their bodies at a site that has a content store.
    """
    # Seeded by a string, so drawn otherwise than the world, which is seeded by the number.
    chance = random.Random(f"references {seed}")
    rules = tuple(LargeRule)
    exchanges = {
        name: replace(exchange, large=chance.choice(rules))
        for name, exchange in mesh.exchanges.items()
    }
    return replace(mesh, exchanges=exchanges)


def _drawn_group(names: Sequence[str], seed: int) -> tuple[str, list[str]]:
    """Draw the group of a mesh, as a mesh file has it, and the sites that are no members."""
    # Seeded by a string, so drawn otherwise than the world, which is seeded by the number.
    chance = random.Random(f"group {seed}")
    members = list(names)
    if len(members) > LEAST_SITES and not chance.randrange(OUTSIDE_ONE_IN):
        members.remove(chance.choice(members))
    count = chance.randint(1, min(MOST_REPLAYERS, len(members)))
    keys = (
        "group: 239.192.7.1:7400",
        f"key: {GROUP_KEY_AT}",
        f"rate: {chance.choice(GROUP_RATES)}",
        f"replayers: [{', '.join(chance.sample(members, count))}]",
    )
    return f"{{{', '.join(keys)}}}", [name for name in names if name not in members]


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
