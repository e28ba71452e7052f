"""A hub with hundreds of branches on one machine: virtual hosts on three brokers, branches share
processes. Each branch to the hub and, addressed, back: exactly once, also after all restart.

ISTHMUS_BRANCHES=N makes it smaller. Prints what a site costs; nothing is asserted of the machine's
speed, memory is.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from relay.node.site_folder import ANNOUNCED, site_folder
from tests.journeys.application import Application, Inbox, letter
from tests.journeys.live_mesh import LiveMesh
from tests.live_brokers import BrokerPool, own_vhost
from tests.waiting import until

BRANCHES = int(os.environ.get("ISTHMUS_BRANCHES", "300"))
SITES_A_PROCESS = 25
BROKERS = 3
SALES, BODY = 40, 8 * 1024
"""Messages of each branch: with 300 of them, more than a segment of the hub's log."""
ORDERS = 10
IDLE_S = 30.0
SITE_MB = 10.0
MOST_METRICS_BYTES = 5_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """With the children that have ended: those that write ledger files."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICK_S


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


async def scrape(mesh: LiveMesh, site: str) -> tuple[int, float]:
    """Bytes of a node's metrics, and the shortest time (s) of five scrapes."""
    announced = json.loads((site_folder(mesh.state, site) / ANNOUNCED).read_text())
    size, least_s = 0, math.inf
    async with aiohttp.ClientSession(f"http://127.0.0.1:{announced['admin_port']}") as client:
        for _ in range(5):
            began = time.monotonic()
            size = len(await (await client.get("/metrics")).read())
            least_s = min(least_s, time.monotonic() - began)
    return size, least_s


class Branches:
    """The applications: one at the hub, one at each branch."""

    def __init__(self, mesh: LiveMesh, branches: list[str]) -> None:
        self.names = branches
        self.hub = Application(mesh.uri("hub"), "hub")
        self.shops = {name: Application(mesh.uri(name), name) for name in branches}
        self.sold: Inbox
        self.ordered: dict[str, Inbox] = {}
        self.rounds = 0

    async def listen(self) -> None:
        self.sold = await self.hub.listen("sales")
        for name, shop in self.shops.items():
            self.ordered[name] = await shop.listen("orders")

    async def trade(self) -> None:
        """Every branch sells, and the hub orders something of each."""
        for name, shop in self.shops.items():
            first = self.rounds * SALES
            sales = [
                letter(b"%s %d " % (name.encode(), first + n) + os.urandom(BODY // 2) * 2)
                for n in range(SALES)
            ]
            await shop.post("sales", *sales)
        for n in range(self.rounds * ORDERS, (self.rounds + 1) * ORDERS):
            orders = [
                letter(b"%s %d" % (name.encode(), n), key=b"store.%s.order" % name.encode())
                for name in self.names
            ]
            await self.hub.post("orders", *orders)
        self.rounds += 1

    async def arrived(self) -> None:
        """All of it, once, in order, and nothing of what is another's."""
        await self.sold.has(len(self.names) * SALES * self.rounds, within_s=600)
        sold: dict[str, list[int]] = {}
        for body in self.sold.bodies:
            name, number, _ = body.split(b" ", 2)
            sold.setdefault(name.decode(), []).append(int(number))
        assert sold == {name: list(range(SALES * self.rounds)) for name in self.names}
        for name, inbox in self.ordered.items():
            await inbox.has(ORDERS * self.rounds, within_s=300)
            wanted = [b"%s %d" % (name.encode(), n) for n in range(ORDERS * self.rounds)]
            assert inbox.bodies == wanted, name

    async def close(self) -> None:
        for application in (self.hub, *self.shops.values()):
            await application.close()


def carried(told: dict[str, Any]) -> set[int]:
    """How many messages the links have carried each, since their processes started."""
    return {link["acked_messages"] for link in told["links"]}


@pytest.mark.scale
async def test_a_hub_and_hundreds_of_branches(broker_pool: BrokerPool, tmp_path: Path) -> None:
    branches = [f"s{number:03}" for number in range(BRANCHES)]
    brokers = await broker_pool.brokers(BROKERS)
    vhosts = {
        name: await own_vhost(brokers[number % BROKERS], name)
        for number, name in enumerate(["hub", *branches])
    }
    shop = {"wants": {"orders": ["store.{site}.#"]}, "tags": ["shop"]}
    document = {
        "topology": {"hub": "hub"},
        "exchanges": [
            {"name": "sales", "from": ["shop"], "to": ["hub"]},
            {"name": "orders", "from": ["hub"], "to": ["shop"]},
        ],
        "sites": {"hub": {}},
        "branches": {"template": shop, "names": branches},
    }
    (tmp_path / "mesh").mkdir()
    mesh = LiveMesh(tmp_path / "mesh", document, vhosts)
    # The hub has a process of its own, as it would have a machine.
    processes = [["hub"]] + [
        branches[n : n + SITES_A_PROCESS] for n in range(0, BRANCHES, SITES_A_PROCESS)
    ]
    trade: Branches | None = None
    try:
        began = time.monotonic()
        await mesh.prepare()
        print(f"\napplied at {BRANCHES + 1} sites after {time.monotonic() - began:.0f} s")
        trade = Branches(mesh, branches)
        began = time.monotonic()
        mesh.start(*processes)
        await mesh.running(within_s=600)
        print(f"all run after {time.monotonic() - began:.0f} s")
        # Each start has left its marks, for all who may get something of that site.
        await mesh.until_told(
            lambda told: not any(link["lag_bytes"] for link in told["links"]), "nothing under way"
        )

        pids = {group[0]: mesh.processes[group[0]].pid for group in processes}
        before = {pid: cpu_s(pid) for pid in pids.values()}
        began = time.monotonic()
        # What is measured is that nothing happens.
        await until(lambda: time.monotonic() >= began + IDLE_S, "idle", IDLE_S, every_s=1.0)
        idle = sum(cpu_s(pid) - was for pid, was in before.items()) / (time.monotonic() - began)
        print(f"idle, all nodes together: {idle:.1%} of a core")

        await trade.listen()
        began = time.monotonic()
        await trade.trade()
        await trade.arrived()
        print(f"traded after {time.monotonic() - began:.0f} s")
        told = await mesh.status()
        assert all(site["duplicates"] == 0 for site in told["sites"].values())
        # A message for one shop crosses one link.
        await mesh.until_told(lambda told: carried(told) == {ORDERS, SALES}, "once over a link")

        for group in processes[1:]:
            resident = resident_mb(pids[group[0]]) / len(group)
            print(f"{group[0]} ...: {resident:.1f} MB a site")
            # Of a full process: what each has of its own is shared by its sites.
            assert resident < SITE_MB or len(group) < SITES_A_PROCESS
        print(f"hub: {resident_mb(pids['hub']):.0f} MB")
        size, took_s = await scrape(mesh, "hub")
        print(f"metrics of the hub: {size / 1e6:.2f} MB in {took_s * 1000:.0f} ms")
        assert size < MOST_METRICS_BYTES

        for group in processes:
            # In a thread: the applications' connections have heartbeats to answer meanwhile.
            assert await asyncio.to_thread(mesh.stop, group[0], within_s=60) == 0
        began = time.monotonic()
        mesh.start(*processes)
        await mesh.running(within_s=600)
        print(f"all run again after {time.monotonic() - began:.0f} s")
        await trade.arrived()
        await trade.trade()
        await trade.arrived()
        # Since they started again, links have carried what is new, and nothing else.
        await mesh.until_told(lambda told: carried(told) == {ORDERS, SALES}, "once over a link")
    finally:
        if trade is not None:
            await trade.close()
        await mesh.close()
