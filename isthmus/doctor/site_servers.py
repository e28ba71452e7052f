"""Examination of a site with several nodes: its ZooKeeper, its Cassandra, and its nodes beside each
other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dedup.journal.journal_row import ROW_FORMAT
from federation.brokers.addresses import AddressBook, AddressError
from federation.brokers.credentials import PasswordMissing
from federation.mesh import JournalPlace, NodeGroup
from federation.wording import counted, few, numbered
from isthmus.clocks import CLOCKS_MAY_DIFFER
from isthmus.doctor.finding import Findings
from isthmus.doctor.server_facts import EnsembleFacts, JournalFacts, ServerAnswer, SlotFacts

MOST_BEHIND_S = 30.0
"""Time without following the journal's end after which a copy counts as far behind."""
_SAFE = 3
"""Number of machines of which one may die, and a majority is left."""
_SYNCED = ("batch", "group")


async def examine_servers(
    book: AddressBook, site: str, report: Mapping[str, Any], found: Findings
) -> Mapping[int, str]:
    """Examine the servers that the nodes of a site share, and the nodes; `report` is the site's
    part of a status report. Returns the node that should run each slot, as far as is known.
    """
    group, slots = book.mesh.sites[site].nodes, book.mesh.sites[site].slots.count
    assert group is not None, f"{site} has no cluster"
    try:
        from isthmus.doctor.server_survey import ensemble_facts, journal_facts
        from relay.cluster.site_servers import cluster_of
    except ImportError as error:
        found.unknown(
            "cluster",
            f"what a question to ZooKeeper and Cassandra needs is not installed here ({error})",
            "pip install 'isthmus[cluster]'",
        )
        return {}
    try:
        servers = cluster_of(book, site)
        ensemble, journal = await asyncio.gather(
            ensemble_facts(servers.zookeeper, slots), journal_facts(servers.cassandra)
        )
    except (AddressError, PasswordMissing) as error:
        found.fault("cluster", str(error), "then run this again: the servers could not be asked")
        return {}
    judge_ensemble(ensemble, found, is_private=group.has_private_servers)
    judge_journal(journal, group.cassandra, found)
    judge_nodes(ensemble, group, found)
    judge_reports(report.get("nodes", {}), found)
    return ensemble.owners


def judge_ensemble(facts: EnsembleFacts, found: Findings, *, is_private: bool = False) -> None:
    """Judge the members of the ensemble, and the login there; a private ensemble has one member,
    on the machine of all nodes.
    """
    subject, count = "ZooKeeper", len(facts.members)
    serving = [one for one in facts.members if not one.why_not and one.serves]
    _silent(subject, facts.members, found)
    for one in facts.members:
        if not one.why_not and not one.serves and serving:
            found.warn(
                subject,
                f"{one.address} serves nobody: it does not reach the majority of the ensemble",
                "look into that member's log, and at the network between the members",
            )
    if not serving and any(not one.why_not for one in facts.members):
        found.fault(
            subject,
            f"no majority: of {counted(count, 'member')} {count - len(_without(facts.members))} "
            "answer, and none serves: nothing stops, and no node takes over",
            "start the members that do not answer, or mend the network between them",
        )
    if facts.login.why_not:
        found.fault(
            subject,
            facts.login.why_not,
            "correct `user` and `password` of `zookeeper:`: entries are open to the user who made "
            "them alone"
            if facts.login.is_refused
            else "look into the members' logs, and at `tls:` of `zookeeper:`",
        )
    elif serving:
        found.ok(subject, f"members that serve: {len(serving)} of {count}")
    if count < _SAFE and not is_private:
        found.warn(
            subject,
            f"{counted(count, 'member')}: when one is away, no node takes over",
            f"make it an ensemble of {_SAFE} members on machines of their own",
        )


def _without(answers: Sequence[ServerAnswer]) -> list[ServerAnswer]:
    """Return those that do not answer."""
    return [one for one in answers if one.why_not]


def _silent(subject: str, answers: Sequence[ServerAnswer], found: Findings) -> None:
    """Name the addresses that do not answer: a weakness, or a fault if none does."""
    silent = _without(answers)
    mend = "start that server, or correct its address or `tls:`; look at firewalls in between"
    if len(silent) == len(answers):
        reasons = few([f"{one.address}: {one.why_not}" for one in silent], between="; ")
        found.fault(subject, f"nobody answers: {reasons}", mend)
        return
    for one in silent:
        found.warn(subject, f"{one.address} does not answer: {one.why_not}", mend)


def judge_journal(facts: JournalFacts, place: JournalPlace, found: Findings) -> None:
    """Judge the hosts of Cassandra, the login there, and the keyspace."""
    subject = "Cassandra"
    _silent(subject, facts.answers, found)
    if facts.login.why_not:
        found.fault(
            subject,
            facts.login.why_not,
            "correct `user` and `password` of `cassandra:`, or give the user its rights"
            if facts.login.is_refused
            else "look into Cassandra's logs, and at `tls:` of `cassandra:`",
        )
    if not facts.hosts:
        return
    found.ok(subject, f"hosts that let us in: {len(facts.hosts)} of {len(facts.answers)}")
    _settings(facts, found)
    _schema(facts, found)
    _clocks(facts, found)
    _keyspace(facts, place, found)
    for number, slot in sorted(facts.slots.items()):
        _slot(slot, f"slot {number}: " if len(facts.slots) > 1 else "", found)


def _settings(facts: JournalFacts, found: Findings) -> None:
    for host in facts.hosts:
        if host.commitlog_sync is None:
            found.unknown(
                "commit log",
                f"{host.address} does not say its commitlog_sync, which has to be `batch`",
                "look into its cassandra.yaml; or GRANT SELECT ON system_views.settings to the "
                "user of `cassandra:`",
            )
        elif host.commitlog_sync not in _SYNCED:
            found.warn(
                "commit log",
                f"{host.address} has commitlog_sync: {host.commitlog_sync}: a power cut takes what "
                "it has confirmed in its last seconds",
                "set `commitlog_sync: batch` in cassandra.yaml, and restart the hosts in turn",
            )
    if all(host.commitlog_sync in _SYNCED for host in facts.hosts):
        found.ok("commit log", "is written before an answer")


def _schema(facts: JournalFacts, found: Findings) -> None:
    if len(facts.schemas) > 1:
        parts = "; ".join(f"{version}: {few(who)}" for version, who in facts.schemas.items())
        found.warn(
            "schema",
            f"the hosts of Cassandra have different schemas: {parts}",
            "normal for seconds after tables were made, and while a host is down; else see "
            "`nodetool describecluster`, and restart the host that differs",
        )


def _clocks(facts: JournalFacts, found: Findings) -> None:
    for host in facts.hosts:
        ahead_s = host.clock_ahead_s
        if ahead_s is not None and abs(ahead_s) > CLOCKS_MAY_DIFFER.total_seconds():
            found.warn(
                "clock",
                f"that of Cassandra at {host.address} differs from this machine's by "
                f"{ahead_s:+.0f} s: nothing breaks by it, as no clock decides who runs the site",
                "let both follow a time server",
            )


def _keyspace(facts: JournalFacts, place: JournalPlace, found: Findings) -> None:
    subject, where = "keyspace", place.datacenter
    if where not in facts.datacenters:
        found.fault(
            subject,
            f"Cassandra has no data centre {where}, but {', '.join(sorted(facts.datacenters))}",
            "correct `datacenter:` of `cassandra:`",
        )
        return
    wanted = f"{{'class': 'NetworkTopologyStrategy', '{where}': {place.replication}}}"
    if facts.replication is None:
        found.warn(
            subject,
            f"{place.keyspace} is not there: the site's first node makes it",
            "start a node; where its user may not make keyspaces: CREATE KEYSPACE "
            f"{place.keyspace} WITH replication = {wanted}",
        )
        return
    copies, hosts = _copies(facts.replication, where), facts.datacenters[where]
    has = f"{place.keyspace} has {counted(copies, 'copy', plural='copies')} in {where}"
    alter = (
        f"ALTER KEYSPACE {place.keyspace} WITH replication = {wanted}; then `nodetool repair "
        f"--full {place.keyspace}` on each host"
    )
    if not copies:
        none = f"{place.keyspace} has no copy in {where}: nothing can be written"
        found.fault(subject, none, alter)
    elif copies < place.replication:
        found.warn(subject, f"{has}, and {place.replication} are wanted", alter)
    elif hosts < copies:
        few_hosts = f"{has}, and the data centre {counted(hosts, 'host')}"
        mend = (
            "add hosts, or have fewer copies: `replication:` of `cassandra:`, and ALTER KEYSPACE "
            f"{place.keyspace}"
        )
        if hosts < copies // 2 + 1:
            found.fault(subject, f"{few_hosts}: nothing can be written", mend)
        else:
            found.warn(subject, few_hosts, mend)
    else:
        found.ok(subject, has)


def _copies(replication: Mapping[str, str], datacenter: str) -> int:
    """Return the number of a keyspace's whole copies in a data centre."""
    is_simple = replication.get("class", "").endswith("SimpleStrategy")
    text = replication.get("replication_factor" if is_simple else datacenter, "0")
    count, _, transient = text.partition("/")
    return int(count) - int(transient or 0)


def _slot(slot: SlotFacts, which: str, found: Findings) -> None:
    if slot.is_command:
        found.fault("state", f"{which}no node may take it: {slot.owner}", "do what that says")
    if slot.row_format is not None and slot.row_format > ROW_FORMAT:
        found.fault(
            "journal",
            f"its rows have format {slot.row_format}, and this version of Isthmus reads "
            f"{ROW_FORMAT}",
            "install the newer version, which the node that wrote them has",
        )


def judge_nodes(facts: EnsembleFacts, group: NodeGroup, found: Findings) -> None:
    """Judge which nodes are connected to the ensemble, and whether one has the site."""
    subject, there = "nodes", facts.nodes
    if there is None:
        return
    start = f"isthmus relay FILE --site {found.site} --node"
    if not there:
        found.fault(
            subject,
            "none is connected to ZooKeeper",
            f"start them: `{start} NAME`; of one that runs, `isthmus status` has the reason",
        )
        return
    for name in group.names:
        if name not in there:
            found.warn(
                subject,
                f"{name} is not connected to ZooKeeper",
                f"start it: `{start} {name}`; if it runs, its log has the reason",
            )
    strangers = [name for name in there if group.names and name not in group.names]
    if strangers:
        found.warn(
            subject,
            f"{few(strangers)} of another mesh file: `nodes:` has {', '.join(group.names)}",
            "give that machine the same file, or end that node",
        )
    if len(there) == 1:
        found.warn(
            subject,
            f"{there[0]} is alone: when it is gone, nobody takes over",
            "start another node, on another machine",
        )
    free = [slot for slot, owner in facts.owners.items() if not owner]
    what = numbered("slot", free) if len(facts.owners) > 1 else "the site"
    if free:
        found.fault(
            subject,
            f"nobody runs {what}, though {few(there)} could",
            "`isthmus status` has the reason of each node; its log has more",
        )
    elif len(facts.owners) == 1:
        found.ok(subject, f"{facts.owners[0]} runs the site, of {', '.join(_where(facts))}")
    else:
        counts = Counter(facts.owners.values())
        shares = zip(there, _where(facts), strict=True)
        found.ok(subject, "slots: " + ", ".join(f"{counts[one]} at {each}" for one, each in shares))
    _versions(facts.versions, found)
    _copies_in_all(facts, group, found)


def _where(facts: EnsembleFacts) -> list[str]:
    """Return each connected node with its machine, if that is known."""
    machines = facts.machines
    return [f"{one} on {machines[one]}" if one in machines else one for one in facts.nodes or ()]


def _versions(versions: Mapping[str, str], found: Findings) -> None:
    """Judge whether all nodes that are there run the same version of Isthmus."""
    if len(set(versions.values())) > 1:
        found.warn(
            "nodes",
            "they run different versions: "
            + ", ".join(f"{node} has {version}" for node, version in versions.items()),
            "amid an upgrade that is as it should be; else upgrade the others too, one at a time",
        )


def _copies_in_all(facts: EnsembleFacts, group: NodeGroup, found: Findings) -> None:
    """Judge whether the nodes that are there have as many copies as they should."""
    most = min(group.copies, len(facts.nodes or ()) - 1)
    lacking = [slot for slot, count in facts.copies.items() if count < most]
    if lacking:
        what = numbered("slot", lacking) if len(facts.copies) > 1 else "the site"
        found.warn(
            "copies",
            f"{what} should have {counted(most, 'copy', plural='copies')} at the journal's end",
            "wait, while nodes read the journal; if it stays, see the logs of the nodes",
        )


def judge_reports(nodes: Mapping[str, Any], found: Findings) -> None:
    """Judge what nodes of this state folder report."""
    for name, node in nodes.items():
        if node["state"] == "stopped":
            found.warn("nodes", f"{name} stopped: {node['reason']}", "do what the reason says")
        held, copy = node.get("held", ()), node.get("copy")
        away_s = [one["journal_away_s"] for one in held if one["journal_away_s"] is not None]
        if away_s:
            waiting_bytes = sum(one["waiting_bytes"] for one in held)
            found.fault(
                "journal",
                f"{name} has not reached Cassandra for {max(away_s):.0f} s, and delivers nothing:"
                f" {waiting_bytes:,} bytes wait",
                "see what is said of Cassandra",
            )
        if copy is not None:
            _copy(name, copy, found)


def _copy(name: str, copy: Mapping[str, Any], found: Findings) -> None:
    followed_s = copy["followed_s"]
    if followed_s is None:
        found.warn(
            "copies",
            f"that of {name} has not reached the journal's end yet: a takeover would take as long",
            "wait, and look again; if it stays, see what is said of Cassandra",
        )
    elif followed_s > MOST_BEHIND_S:
        found.warn(
            "copies",
            f"that of {name} was last at the journal's end {followed_s:.0f} s ago",
            "see what is said of Cassandra, and the log of that node",
        )
