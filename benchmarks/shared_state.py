"""Cost of a site's second node: one hop whose receiver has one node, and two in turn.

    python -m benchmarks.shared_state [--rabbitmq DIR] [--rounds 3] [--rate 1000] [--members 3]

A site publishes at `rate` to another one, on real brokers. In each round the receiving site has one
node, with its state on its own disk, and then two, with a journal in `members` nodes of Cassandra.
What is printed is the CPU of the running node and of the standby in microseconds a message, their
memory, the delays of messages, and the time of a row of the journal; then medians, least and most.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.compare.brokers import Brokers
from benchmarks.compare.isthmus_way import IsthmusMesh
from benchmarks.compare.layout import one_hop
from benchmarks.compare.until import until
from benchmarks.compare.usage import memory_mb, tree_cpu_s
from benchmarks.compare.way import Lines
from benchmarks.takeover import NODES, SITE, Arrivals, load, run, site_servers
from isthmus.brokers.installation import RabbitMQInstallation, find_installation

WARM_S = 5.0
MEASURED_S = 15.0


async def _measure(
    folder: Path, installation: RabbitMQInstallation, keys: Mapping[str, Any], rate: int
) -> dict[str, float]:
    """Run one mesh with these keys of the receiving site; return its figures."""
    layout, arrivals = one_hop(), Arrivals()
    async with Brokers(installation, folder, layout.sites) as brokers:
        mesh = IsthmusMesh(folder, [{"name": "orders"}], sites={"site0": {}, SITE: dict(keys)})
        try:
            await mesh.set_up(brokers, layout, Lines(brokers, None, None))
            await mesh.ready()
            states = await _states(mesh) if keys else {"running": SITE}
            pids = {state: mesh.nodes[name].pid for state, name in states.items()}
            async with load(brokers, rate, arrivals):
                await asyncio.sleep(WARM_S)
                arrivals.delays.clear()
                before = {state: tree_cpu_s([pid]) for state, pid in pids.items()}
                await asyncio.sleep(MEASURED_S)
                count = len(arrivals.delays)
                figures = {
                    f"{state} CPU us": (tree_cpu_s([pid]) - before[state]) / count * 1e6
                    for state, pid in pids.items()
                }
                delays = sorted(arrivals.delays)
                if keys:
                    figures["journal's row p50 ms"] = await _row_s(mesh) * 1e3
            figures |= {f"{state} MB": memory_mb(pid) for state, pid in pids.items()}
            figures["p50 ms"] = delays[len(delays) // 2] * 1e3
            figures["p99 ms"] = delays[len(delays) * 99 // 100] * 1e3
            figures["messages/s"] = count / MEASURED_S
            return figures
        finally:
            await mesh.close()


async def _states(mesh: IsthmusMesh) -> dict[str, str]:
    """Wait until one node runs and one stands by; return their processes by state."""
    found: dict[str, str] = {}

    async def both() -> bool:
        nodes = (await mesh.status())["sites"][SITE].get("nodes", {})
        found.clear()
        found.update({node["state"]: f"{SITE}/{name}" for name, node in nodes.items()})
        return found.keys() >= {"running", "standby"}

    await until(both, "one node runs and one stands by")
    return found


async def _row_s(mesh: IsthmusMesh) -> float:
    """Return the median time (s) of the journal's last rows."""
    nodes = (await mesh.status())["sites"][SITE]["nodes"].values()
    (row_s,) = [held["row_s"] for node in nodes for held in node["held"]]
    return float(row_s)


async def _main(arguments: argparse.Namespace) -> None:
    installation = find_installation(arguments.rabbitmq)
    figures: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with site_servers(folder / "servers", arguments.members) as cluster:
            for number in range(arguments.rounds):
                cassandra = {**cluster["cassandra"], "keyspace": f"round{number}"}
                shared = {"nodes": list(NODES), "cluster": {**cluster, "cassandra": cassandra}}
                for way, keys in (("one node", {}), ("two nodes", shared)):
                    place = folder / f"{number} {way}"
                    place.mkdir()
                    found = await _measure(place, installation, keys, arguments.rate)
                    for what, figure in found.items():
                        figures.setdefault((way, what), []).append(figure)
                    shown = ", ".join(f"{what} {figure:.1f}" for what, figure in found.items())
                    print(f"round {number + 1}, {way}: {shown}")
                    sys.stdout.flush()
    for (way, what), each in figures.items():
        print(f"{way}, {what}: {statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})")


if __name__ == "__main__":
    run(_main, __doc__.splitlines()[0], 3)
