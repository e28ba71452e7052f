"""State of a mesh, by its nodes and its supervisor.

A silent node is down, or starting if the supervisor reports so; never running.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import resolve_password
from federation.brokers.tls import TlsFilesBroken, client_context
from federation.brokers.tls_refusals import tls_refusal
from federation.mesh import LOCAL_ADMIN, AdminAccess, Mesh, Site, TlsFiles
from federation.mesh_file import PasswordMissing
from federation.wording import few
from isthmus.clocks import clocks_apart
from isthmus.group_hearing import group_notes
from isthmus.known.address_book import address_book
from isthmus.known.cautions import left_behind_notes
from isthmus.up.resting import rests
from isthmus.up.supervision import Phase
from isthmus.up.supervisor_record import SupervisorRecord, read_record
from relay.node.site_folder import (
    ANNOUNCED,
    QUIESCED,
    STANDBY,
    node_folder,
    node_folders,
    site_folder,
)
from relay.node.site_slots import links_of_slots, site_of_slots

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
"""Counts unknown of a silent node."""
CARRIES = ("running", "lagging")
"""States of links that carry messages, on time or late."""
LEAVING = ("draining", "drained")
CLOSED = (*LEAVING, "quiescing", QUIESCED)
"""States of sites that receive nothing."""
HELD = ("paused", *CLOSED)
"""States ordered by an operator."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Status report; `content` is what `isthmus status --json` prints."""

    content: dict[str, Any]

    @property
    def all_running(self) -> bool:
        """True if every site and link runs."""
        return all(site["state"] == "running" for site in self.content["sites"].values()) and all(
            link["state"] in CARRIES for link in self.content["links"]
        )

    @property
    def is_settled(self) -> bool:
        """True if everything runs except what an operator holds back."""
        return not self._waiting

    @property
    def summary(self) -> str:
        """Line that names what does not run, and why."""
        waiting = self._waiting
        return "waiting for " + ", ".join(waiting) if waiting else "everything runs"

    def held_lines(self, file: Path) -> list[str]:
        """Return lines on what an operator holds back, with the command to resume."""
        sites = [
            f"{name} is {site['state']}: `isthmus resume {file} --site {name}` lets it go on"
            for name, site in self.content["sites"].items()
            if site["state"] in HELD
        ]
        links = [f"{link['from']}-{link['to']}" for link in self.content["links"] if _rests(link)]
        return sites + [
            f"link {name} is paused: `isthmus resume {file} --link {name}` lets it go on"
            for name in links
        ]

    @property
    def _waiting(self) -> list[str]:
        sites = self.content["sites"]
        closed = {name for name, site in sites.items() if site["state"] in CLOSED}
        waiting = [
            # A node not yet started has no reason to show.
            f"{name} {site['state']}"
            + (f" ({site['reason']})" if site["reason"] and site.get("node_pid") else "")
            for name, site in sites.items()
            if site["state"] != "running" and site["state"] not in HELD
        ]
        # Links of sites that are down wait for their sites.
        return waiting or [
            f"{link['from']}->{link['to']} {link['state']}"
            for link in self.content["links"]
            if link["state"] not in CARRIES
            and not _rests(link)
            # Nothing is sent to a site that receives nothing.
            and link["to"] not in closed
        ]


def _rests(link: Mapping[str, Any]) -> bool:
    return bool(link["state"] == "paused")


async def status_of(mesh: Mesh, state: Path) -> StatusReport:
    """Ask every node of the state folder at once."""
    record = last_record = read_record(state)
    if record is not None and not record.is_alive:
        record = None
    try:
        book = address_book(mesh, state)
    except (AddressError, PasswordMissing):
        book = None
    timeout = aiohttp.ClientTimeout(total=ASK_WITHIN_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        request = _NodeAsker(session, state)
        answers = await asyncio.gather(*map(request.of, mesh.sites.values()))
    by_site = dict(zip(mesh.sites, answers, strict=True))
    answers_by_site = _Answers(mesh, state, by_site, record, book, last_record)
    sites = {site: answers_by_site.site(site) for site in mesh.sites}
    links = _links(mesh, by_site)
    return StatusReport(
        {
            "mesh": mesh.name,
            "revision": mesh.revision,
            "notes": [
                *revision_notes(mesh.revision, sites),
                *left_behind_notes(mesh, state),
                *clocks_apart(mesh, links),
                *group_notes(sites),
                *_servers_away(record, state),
            ],
            "sites": sites,
            "links": links,
        }
    )


def _servers_away(record: SupervisorRecord | None, state: Path) -> list[str]:
    """Return a note on each private ZooKeeper or Cassandra that does not run."""
    servers = [child for child in record.children if child.kind == "server"] if record else []
    return [
        f"the private {child.name} is {child.state}"
        f" ({child.reason or child.last_exit or 'it has not answered yet'}): its log is"
        f" {state / 'logs' / child.name}.log"
        for child in servers
        if child.state != Phase.RUNNING.value
    ]


@dataclass(frozen=True, slots=True)
class _Answer:
    """Answer for one site: a node's report, or the reason for its absence."""

    report: dict[str, Any] | None
    why: str = ""
    is_here: bool = True
    """True if the node is on this machine; of others only silence is known."""
    stopped: str = ""
    """Reason left by a node that stopped by itself."""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    """State, reason and process ID by node, of a site with several."""

    def state_of(self, site: str) -> str:
        """Return the node's state, as far as known."""
        own = self._own(site)
        return str(own["state"]) if own else "stopped" if self.stopped else "down"

    def reason_of(self, site: str) -> str:
        own = self._own(site)
        return str(own["reason"]) if own else self.stopped or self.why

    def shared_of(self, site: str) -> dict[str, Any]:
        """Return what the node shares with the site's others: the numbers of the slots that it
        runs, the figures of each, and the copy that is most behind of slots that it does not run.
        """
        own = self._own(site) or {}
        slots = own.get("slots", [own])
        return {
            "slots": [n for n, slot in enumerate(slots) if slot.get("slot")],
            "held": [slot["slot"] for slot in slots if slot.get("slot")],
            "copy": max(
                (slot["copy"] for slot in slots if slot.get("copy")), key=_behind_s, default=None
            ),
        }

    def rank(self, site: str) -> tuple[bool, int]:
        """Return the rank of the node among the site's nodes: the lowest speaks for the site."""
        return _rank(self._own(site) or {"state": self.state_of(site)})

    def slots_of(self, site: str) -> Sequence[dict[str, Any]]:
        """Return the reports of the site's slots at this node; empty unless it has several."""
        slots: Sequence[dict[str, Any]] = (self._own(site) or {}).get("slots", ())
        return slots

    def _own(self, site: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = (self.report or {}).get("sites", {}).get(site)
        return found


def _behind_s(copy: Mapping[str, Any]) -> float:
    followed_s = copy["followed_s"]
    return float("inf") if followed_s is None else float(followed_s)


def _with_all_slots(site: Site, answers: Sequence[_Answer]) -> _Answer:
    """Return the answer of all nodes of a site together: of each slot that of the node that runs
    the slot.
    """
    found = [answer for answer in answers if len(answer.slots_of(site.name)) == site.slots.count]
    runs = min(answers, key=lambda answer: answer.rank(site.name))
    if not found:
        return runs
    slots = [
        min((answer.slots_of(site.name)[number] for answer in found), key=_rank)
        for number in range(site.slots.count)
    ]
    reports = [answer.report for answer in found if answer.report is not None]
    of_site = [
        [link for link in report["links"] if link["from"] == site.name] for report in reports
    ]
    report = {
        **reports[0],
        "sites": {site.name: site_of_slots(slots)},
        "links": links_of_slots(of_site),
    }
    return replace(found[0], report=report)


_RANKS = {STANDBY: 1, "starting": 1, "stopped": 2, "down": 3}
"""Ranks of the states of a site's nodes; others have 0."""


def _rank(report: Mapping[str, Any]) -> tuple[bool, int]:
    """Return the rank of a node's report of a site or slot. A node that has the state speaks, also
    if its broker is away: the others only stand by.
    """
    return not report.get("slot"), _RANKS.get(report["state"], 0)


class _NodeAsker:
    """Client that asks each process once, however many sites share it."""

    def __init__(self, session: aiohttp.ClientSession, state: Path) -> None:
        self._session = session
        self._state = state
        self._requests: dict[tuple[str, AdminAccess], asyncio.Task[dict[str, Any]]] = {}

    async def of(self, site: Site) -> _Answer:
        """Ask the site's node, or all its nodes that are here or have an address: the answer is of
        the one that runs the site, or of all that run a part of it.
        """
        folder = site_folder(self._state, site.name)
        if site.nodes is None:
            return await self._ask(site, folder)
        here = [one.name for one in node_folders(folder) if one != folder]
        names = sorted({*here, *site.far_nodes})
        if not names:
            return await self._ask(site, folder)
        answers = await asyncio.gather(
            *(self._ask(site, node_folder(self._state, site.name, name), name) for name in names)
        )
        nodes = dict(zip(names, answers, strict=True))
        return replace(
            _with_all_slots(site, answers),
            nodes={
                name: {
                    "state": answer.state_of(site.name),
                    "reason": answer.reason_of(site.name),
                    **answer.shared_of(site.name),
                    "pid": None if answer.report is None else answer.report["pid"],
                }
                for name, answer in nodes.items()
            },
        )

    async def _ask(self, site: Site, folder: Path, node: str = "") -> _Answer:
        """Ask the node at the address in its folder, or else of the mesh file."""
        admin = site.admin_of(node)
        file = folder / ANNOUNCED
        try:
            where = json.loads(file.read_text())
            pid, url = where["pid"], f"http://127.0.0.1:{where['admin_port']}"
            stopped = str(where.get("stopped", ""))
        except (OSError, ValueError, KeyError, TypeError):
            if admin is None:
                return _Answer(None, "the mesh file has no `admin:` where it could be asked", False)
            pid, url, stopped = None, admin, ""
        is_here = pid is not None
        access = LOCAL_ADMIN if is_here else site.admin_access
        if (url, access) not in self._requests:
            request = node_report(self._session, url, access, os.environ)
            self._requests[url, access] = asyncio.create_task(request)
        try:
            report = await self._requests[url, access]
        except NoReport as error:
            why = "the node does not answer" if is_here else f"nobody answers at {url}: {error}"
            return _Answer(None, why, is_here, stopped)
        if is_here and report["pid"] != pid:
            return _Answer(None, "the node does not answer", stopped=stopped)
        return _Answer(report, "its process serves other sites", is_here)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers of all nodes."""

    mesh: Mesh
    state: Path
    answers: Mapping[str, _Answer]
    record: SupervisorRecord | None
    """Record of the running supervisor."""
    book: AddressBook | None
    last_record: SupervisorRecord | None
    """Record of the last supervisor."""

    def site(self, site: str) -> dict[str, Any]:
        """Return a site's part of the report."""
        content: dict[str, Any] = {
            "amqp": _amqp(self.book, site),
            "broker_pid": None,
            "node_pid": None,
        }
        node = self.record.child("node", site) if self.record else None
        broker = self.record.child("broker", site) if self.record else None
        if broker is not None:
            content["broker_pid"] = broker.pid
            content["broker_state"] = broker.state
        if node is not None:
            content["node_pid"] = node.pid
            content["restarts"] = node.restarts
        answer = self.answers[site]
        own = (answer.report or {}).get("sites", {}).get(site)
        if answer.nodes:
            content["nodes"] = answer.nodes
        if own is not None:
            return {**content, **own}
        content |= dict.fromkeys(_COUNTS, None)
        if node is not None and node.state in ("starting", "waiting"):
            return content | {"state": "starting", "reason": node.last_exit or ""}
        if node is not None and node.state == "stopped":
            return content | {"state": "stopped", "reason": node.reason or node.last_exit or ""}
        if answer.stopped:
            return content | {"state": "stopped", "reason": answer.stopped}
        if answer.is_here or node is not None:
            return content | {"state": "down", "reason": self._why_away(site)}
        if self.mesh.sites[site].broker is None and self.mesh.sites[site].admin is None:
            # A private broker is on the machine of its state folder: here.
            reason = (
                f"never started with the state folder {self.state}: `isthmus up` or `isthmus "
                "relay` starts it; or say which --state"
            )
            return content | {"state": "down", "reason": reason}
        return content | {
            "state": "unknown",
            "reason": f"{answer.why}{_heard_by(site, self.answers)}",
        }

    def _why_away(self, site: str) -> str:
        """Return why a node of this machine is silent."""
        if self.record is not None and rests(self.state, site):
            return (
                "the node was ended by `isthmus down --site`; `isthmus up --detach` starts it again"
            )
        before = self.last_record.child("node", site) if self.last_record else None
        if self.record is not None or before is None:
            return "the node does not answer"
        if before.state == Phase.ENDED.value:
            return "it was ended, by `isthmus down` or Ctrl-C: `isthmus up` starts it again"
        return "it is gone, and so is `isthmus up`, which ran it: `isthmus up` starts it again"


def _heard_by(site: str, answers: Mapping[str, _Answer]) -> str:
    """Return what neighbours report about a silent node: a link to the node runs only if the node
    lives.
    """
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
    found = [answer.report for answer in answers.values() if answer.report is not None]
    # Sites that share a process share its report.
    reports = list({id(report): report for report in found}.values())
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


class NoReport(Exception):
    """No report; the text gives the reason, and may be empty."""


async def node_report(
    session: aiohttp.ClientSession, url: str, access: AdminAccess, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Fetch /status; `environ` resolves an `env:` token. Raises NoReport."""
    context: ssl.SSLContext | None = None
    try:
        if url.startswith("https:"):
            context = client_context(TlsFiles(ca=access.tls.ca))
        headers = {}
        if access.token:
            headers["Authorization"] = f"Bearer {resolve_password(access.token, environ)}"
        # No redirects: the token is for this address only.
        request = session.get(
            f"{url}/status", headers=headers, ssl=context or True, allow_redirects=False
        )
        async with request as answer:
            if answer.status == 401:
                raise NoReport(f"it does not take the token in {access.token}")
            report: dict[str, Any] = await answer.json()
            if not {"pid", "sites", "links"} <= report.keys():
                raise NoReport("what answers is no node of this version")
            return report
    except (TlsFilesBroken, PasswordMissing) as error:
        raise NoReport(str(error)) from error
    # A time-out is an OSError.
    except (OSError, ValueError, AttributeError, aiohttp.ClientError) as error:
        why = tls_refusal(error, context, in_login=False) or str(error)
        raise NoReport(why or "no answer in time") from error


def revision_notes(revision: str, sites: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return lines on nodes that do not run the file's `revision`, and why; silent nodes are left
    out.
    """
    why = [
        f"{name}: the mesh file is not taken up: {site['file_problem']}"
        for name, site in sites.items()
        if site.get("file_problem")
    ]
    running: dict[str, list[str]] = {}
    for name, site in sites.items():
        if site.get("revision"):
            running.setdefault(site["revision"], []).append(name)
    if len(running) > 1:
        parts = [
            f"{one}{' (the file)' if one == revision else ''}: {few(names, 5)}"
            for one, names in running.items()
        ]
        why.append(f"nodes run different revisions of the mesh file: {'; '.join(parts)}")
    elif running and revision not in running:
        (other,) = running
        why.append(
            f"the nodes run revision {other}, the file is at {revision}: they take it up within "
            "seconds, if it is the file that they watch"
        )
    return why
