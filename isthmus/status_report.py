"""The state of a mesh, asked of its nodes and its supervisor.

A node that does not answer is down, or starting if its supervisor says so; never running.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from federation.addresses import AddressBook, AddressError
from federation.mesh import Mesh
from federation.mesh_file import PasswordMissing
from isthmus.address_book import address_book
from isthmus.supervisor_record import SupervisorRecord, read_record

ASK_WITHIN_S = 3.0
_COUNTS = (
    "delivered",
    "duplicates",
    "redelivered",
    "unrouted",
    "expired",
    "dead",
    "quarantined",
)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What `isthmus status --json` prints, as `told`."""

    told: dict[str, Any]

    @property
    def all_running(self) -> bool:
        """Every site and every link."""
        parts = [*self.told["sites"].values(), *self.told["links"]]
        return all(part["state"] == "running" for part in parts)

    @property
    def summary(self) -> str:
        """One line: who is not running, and why."""
        waiting = [
            f"{name} {site['state']}" + (f" ({site['reason']})" if site["reason"] else "")
            for name, site in self.told["sites"].items()
            if site["state"] != "running"
        ]
        waiting += [
            f"{link['from']}->{link['to']} {link['state']}"
            for link in self.told["links"]
            if link["state"] != "running"
        ]
        return "waiting for " + ", ".join(waiting) if waiting else "everything runs"


async def status_of(mesh: Mesh, state: Path) -> StatusReport:
    """Ask every node of this state folder, all at once."""
    record = read_record(state)
    if record is not None and not record.is_alive:
        record = None
    try:
        book = address_book(mesh, state)
    except (AddressError, PasswordMissing):
        book = None
    timeout = aiohttp.ClientTimeout(total=ASK_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        answers = await asyncio.gather(
            *(_ask(session, state / "sites" / site / "node.json") for site in mesh.sites)
        )
    by_site = dict(zip(mesh.sites, answers, strict=True))
    sites = {site: _site(mesh, site, by_site[site], record, book, state) for site in mesh.sites}
    return StatusReport(
        {
            "mesh": mesh.name,
            "revision": mesh.revision,
            "sites": sites,
            "links": _links(mesh, by_site),
        }
    )


async def _ask(session: aiohttp.ClientSession, file: Path) -> dict[str, Any] | None:
    """A node's own report; None when it does not answer as the process that it says it is."""
    try:
        where = json.loads(file.read_text())
        async with session.get(f"http://127.0.0.1:{where['admin_port']}/status") as answer:
            report: dict[str, Any] = await answer.json()
    except (OSError, ValueError, KeyError, aiohttp.ClientError, TimeoutError):
        return None
    return report if report.get("pid") == where.get("pid") else None


def _site(
    mesh: Mesh,
    site: str,
    answer: dict[str, Any] | None,
    record: SupervisorRecord | None,
    book: AddressBook | None,
    state: Path,
) -> dict[str, Any]:
    told: dict[str, Any] = {"amqp": _amqp(book, site), "broker_pid": None, "node_pid": None}
    node = record.child("node", site) if record else None
    broker = record.child("broker", site) if record else None
    if broker is not None:
        told["broker_pid"] = broker.pid
        told["broker_state"] = broker.state
    if node is not None:
        told["node_pid"] = node.pid
        told["restarts"] = node.restarts
    own = (answer or {}).get("sites", {}).get(site)
    if own is not None:
        told |= own
    else:
        told |= {"state": "down", "reason": "the node does not answer", "egress_messages": None}
        told |= dict.fromkeys(_COUNTS, None)
        if node is not None and node.state in ("starting", "waiting"):
            told |= {"state": "starting", "reason": node.last_exit or ""}
        elif node is not None and node.state == "stopped":
            told |= {"state": "stopped", "reason": node.reason or node.last_exit or ""}
        elif node is None and not (state / "sites" / site / "node.json").exists():
            told |= {"state": "down", "reason": "never started: `isthmus up` or `isthmus relay`"}
    return told


def _amqp(book: AddressBook | None, site: str) -> str | None:
    if book is None:
        return None
    try:
        return book.application(site).public_uri
    except (AddressError, PasswordMissing):
        return None


def _links(mesh: Mesh, by_site: dict[str, dict[str, Any] | None]) -> list[dict[str, Any]]:
    reported = {
        (link["from"], link["to"]): link
        for answer in by_site.values()
        if answer is not None
        for link in answer["links"]
    }
    links = []
    for link in mesh.links:
        known = reported.get((link.sender, link.receiver))
        links.append(
            known
            or {
                "from": link.sender,
                "to": link.receiver,
                "state": "down",
                "reason": f"the node of {link.sender} does not answer",
                "lag_messages": None,
                "lag_bytes": None,
                "lag_seconds": None,
            }
        )
    return links
