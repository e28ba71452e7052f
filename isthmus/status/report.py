"""The state of a mesh, asked of its nodes and its supervisor.

A node that does not answer is down, or starting if its supervisor says so; never running.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from federation.brokers.addresses import AddressBook, AddressError
from federation.mesh import LOCAL_ADMIN, AdminAccess, Mesh, Site
from federation.mesh_file import PasswordMissing
from isthmus.known.address_book import address_book
from isthmus.known.cautions import left_behind_told
from isthmus.status.clocks import clocks_apart
from isthmus.status.node_report import NoReport, node_report
from isthmus.status.revision_report import revisions_told
from isthmus.up.supervision import Phase
from isthmus.up.supervisor_record import SupervisorRecord, read_record

ASK_WITHIN_S = 3.0
_COUNTS = (
    "egress_messages",
    "dead_letters_waiting",
    "quarantine_waiting",
    "undelivered_messages",
    "delivered",
    "duplicates",
    "redelivered",
    "unrouted",
    "expired",
    "dead_lettered",
    "quarantined",
)
"""What nobody knows of a node that does not answer."""
CARRIES = ("running", "lagging")
"""States of links that carry what they should, if late."""
LEAVING = ("draining", "drained")
HELD = ("paused", *LEAVING)
"""States that somebody has ordered."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What `isthmus status --json` prints, as `told`."""

    told: dict[str, Any]

    @property
    def all_running(self) -> bool:
        """Every site and every link."""
        return all(site["state"] == "running" for site in self.told["sites"].values()) and all(
            link["state"] in CARRIES for link in self.told["links"]
        )

    @property
    def is_settled(self) -> bool:
        """Everything runs that nobody holds back."""
        return not self._waiting

    @property
    def summary(self) -> str:
        """One line: who is not running, and why."""
        waiting = self._waiting
        return "waiting for " + ", ".join(waiting) if waiting else "everything runs"

    def held_lines(self, file: Path) -> list[str]:
        """What somebody holds back, and the command that lets it go on."""
        sites = [
            f"{name} is {site['state']}: `isthmus resume {file} --site {name}` lets it go on"
            for name, site in self.told["sites"].items()
            if site["state"] in HELD
        ]
        links = [f"{link['from']}-{link['to']}" for link in self.told["links"] if _rests(link)]
        return sites + [
            f"link {name} is paused: `isthmus resume {file} --link {name}` lets it go on"
            for name in links
        ]

    @property
    def _waiting(self) -> list[str]:
        sites = self.told["sites"]
        leaving = {name for name, site in sites.items() if site["state"] in LEAVING}
        waiting = [
            # Of one that nobody has started yet there is nothing to say.
            f"{name} {site['state']}"
            + (f" ({site['reason']})" if site["reason"] and site.get("node_pid") else "")
            for name, site in sites.items()
            if site["state"] != "running" and site["state"] not in HELD
        ]
        # Links of sites that do not run wait for these.
        return waiting or [
            f"{link['from']}->{link['to']} {link['state']}"
            for link in self.told["links"]
            if link["state"] not in CARRIES
            and not _rests(link)
            # Nothing is sent to a site that is to leave.
            and link["to"] not in leaving
        ]


def _rests(link: Mapping[str, Any]) -> bool:
    return bool(link["state"] == "paused")


async def status_of(mesh: Mesh, state: Path) -> StatusReport:
    """Ask every node of this state folder, all at once."""
    record = last_record = read_record(state)
    if record is not None and not record.is_alive:
        record = None
    try:
        book = address_book(mesh, state)
    except (AddressError, PasswordMissing):
        book = None
    timeout = aiohttp.ClientTimeout(total=ASK_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        asking = _Asking(session, state)
        answers = await asyncio.gather(*map(asking.of, mesh.sites.values()))
    by_site = dict(zip(mesh.sites, answers, strict=True))
    asked = _Asked(mesh, state, by_site, record, book, last_record)
    sites = {site: asked.site(site) for site in mesh.sites}
    links = _links(mesh, by_site)
    return StatusReport(
        {
            "mesh": mesh.name,
            "revision": mesh.revision,
            "notes": [
                *revisions_told(mesh.revision, sites),
                *left_behind_told(mesh, state),
                *clocks_apart(mesh, links),
            ],
            "sites": sites,
            "links": links,
        }
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came of asking for one site: a node's report, or why there is none."""

    report: dict[str, Any] | None
    said: str = ""
    is_here: bool = True
    """Its node is one of this machine; else nobody here can say more than that it is silent."""
    stopped: str = ""
    """Why it stopped by itself, as it left word of; its process is gone."""


class _Asking:
    """Asks each process once, however many sites it serves."""

    def __init__(self, session: aiohttp.ClientSession, state: Path) -> None:
        self._session = session
        self._state = state
        self._asked: dict[tuple[str, AdminAccess], asyncio.Task[dict[str, Any]]] = {}

    async def of(self, site: Site) -> _Answer:
        """A node of this state folder, where it says; any other where the mesh file says."""
        file = self._state / "sites" / site.name / "node.json"
        try:
            where = json.loads(file.read_text())
            pid, url = where["pid"], f"http://127.0.0.1:{where['admin_port']}"
            stopped = str(where.get("stopped", ""))
        except (OSError, ValueError, KeyError, TypeError):
            if site.admin is None:
                return _Answer(None, "the mesh file has no `admin:` where it could be asked", False)
            pid, url, stopped = None, site.admin, ""
        is_here = pid is not None
        access = LOCAL_ADMIN if is_here else site.admin_access
        if (url, access) not in self._asked:
            asking = node_report(self._session, url, access, os.environ)
            self._asked[url, access] = asyncio.create_task(asking)
        try:
            report = await self._asked[url, access]
        except NoReport as error:
            said = "the node does not answer" if is_here else f"nobody answers at {url}: {error}"
            return _Answer(None, said, is_here, stopped)
        if is_here and report["pid"] != pid:
            return _Answer(None, "the node does not answer", stopped=stopped)
        return _Answer(report, "its process serves other sites", is_here)


@dataclass(frozen=True, slots=True)
class _Asked:
    """All that is known when every node has been asked."""

    mesh: Mesh
    state: Path
    answers: Mapping[str, _Answer]
    record: SupervisorRecord | None
    """Of the supervisor that runs now."""
    book: AddressBook | None
    last_record: SupervisorRecord | None
    """Of the last one that ran."""

    def site(self, site: str) -> dict[str, Any]:
        """Its part of the report."""
        told: dict[str, Any] = {
            "amqp": _amqp(self.book, site),
            "broker_pid": None,
            "node_pid": None,
        }
        node = self.record.child("node", site) if self.record else None
        broker = self.record.child("broker", site) if self.record else None
        if broker is not None:
            told["broker_pid"] = broker.pid
            told["broker_state"] = broker.state
        if node is not None:
            told["node_pid"] = node.pid
            told["restarts"] = node.restarts
        answer = self.answers[site]
        own = (answer.report or {}).get("sites", {}).get(site)
        if own is not None:
            return {**told, **own}
        told |= dict.fromkeys(_COUNTS, None)
        if node is not None and node.state in ("starting", "waiting"):
            return told | {"state": "starting", "reason": node.last_exit or ""}
        if node is not None and node.state == "stopped":
            return told | {"state": "stopped", "reason": node.reason or node.last_exit or ""}
        if answer.stopped:
            return told | {"state": "stopped", "reason": answer.stopped}
        if answer.is_here or node is not None:
            return told | {"state": "down", "reason": self._why_away(site)}
        if self.mesh.sites[site].broker is None and self.mesh.sites[site].admin is None:
            # A private broker is where its state is: on this machine.
            reason = (
                f"never started with the state folder {self.state}: `isthmus up` or `isthmus "
                "relay` starts it; or say which --state"
            )
            return told | {"state": "down", "reason": reason}
        return told | {
            "state": "unknown",
            "reason": f"{answer.said}{_heard_by(site, self.answers)}",
        }

    def _why_away(self, site: str) -> str:
        """Of a node of this machine that does not answer."""
        before = self.last_record.child("node", site) if self.last_record else None
        if self.record is not None or before is None:
            return "the node does not answer"
        if before.state == Phase.ENDED.value:
            return "it was ended, by `isthmus down` or Ctrl-C: `isthmus up` starts it again"
        return "it is gone, and so is `isthmus up`, which ran it: `isthmus up` starts it again"


def _heard_by(site: str, answers: Mapping[str, _Answer]) -> str:
    """What others know of a node that cannot be asked: a link to it runs only if it lives."""
    links = [
        link
        for answer in answers.values()
        if answer.report is not None
        for link in answer.report["links"]
        if link["to"] == site
    ]
    if not links:
        return ""
    hearing = [link["from"] for link in links if link["state"] in CARRIES]
    if hearing:
        return f"; {', '.join(hearing)} has a link to it that runs"
    return f"; the link from {links[0]['from']} to it says: {links[0]['reason']}"


def _amqp(book: AddressBook | None, site: str) -> str | None:
    if book is None:
        return None
    try:
        return book.application(site).public_uri
    except (AddressError, PasswordMissing):
        return None


def _links(mesh: Mesh, answers: Mapping[str, _Answer]) -> list[dict[str, Any]]:
    reports = [answer.report for answer in answers.values() if answer.report is not None]
    reported = {(link["from"], link["to"]): link for report in reports for link in report["links"]}
    links = [
        reported.get((link.sender, link.receiver))
        or {
            "from": link.sender,
            "to": link.receiver,
            "state": "down" if answers[link.sender].is_here else "unknown",
            "reason": f"the node of {link.sender} does not answer",
            "lag_messages": None,
            "lag_bytes": None,
            "lag_seconds": None,
        }
        for link in mesh.links
    ]
    far_ends = {
        (link["from"], link["to"]): link["connected_to"]
        for report in reports
        for site in report["sites"].values()
        for link in site.get("links_in", ())
        if "connected_to" in link
    }
    for link in links:
        if far_end := far_ends.get((link["from"], link["to"])):
            link["receiver_connected_to"] = far_end
    return links
