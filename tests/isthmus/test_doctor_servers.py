"""Findings of `isthmus doctor` about the servers and the nodes of a site with several nodes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dedup.journal.journal_row import ROW_FORMAT, Writes, encode_row, format_of_row
from federation.mesh import EnsemblePlace, JournalPlace, NodeGroup
from isthmus.doctor.finding import Finding, Findings, Grade
from isthmus.doctor.server_facts import (
    CassandraHost,
    EnsembleFacts,
    JournalFacts,
    ServerAnswer,
    ServerLogin,
    SlotFacts,
)
from isthmus.doctor.site_servers import (
    examine_servers,
    judge_ensemble,
    judge_journal,
    judge_nodes,
    judge_reports,
)
from isthmus.known.address_book import address_book
from tests.federation.meshes import mesh_of

FAULT, WARNING, UNKNOWN = Grade.FAULT, Grade.WARNING, Grade.UNKNOWN
MESH = mesh_of(
    "mesh: acme\ntopology: complete\n"
    "sites: {paris: {cluster: {zookeeper: z:1, cassandra: {hosts: c:1}}}, tokyo: {}}\n"
)
MEMBERS = [ServerAnswer(f"z{number}:2181") for number in range(3)]
ENSEMBLE = EnsembleFacts(members=MEMBERS, nodes=["a", "b"], owners={0: "a"})
PLACE = JournalPlace(("c0:9042", "c1:9042", "c2:9042"), "dc1", "paris")
HOSTS = [
    CassandraHost(address=address, clock_ahead_s=0.1, commitlog_sync="batch")
    for address in PLACE.hosts
]
REPLICATION = {"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3"}
JOURNAL = JournalFacts(
    answers=[ServerAnswer(address) for address in PLACE.hosts],
    hosts=HOSTS,
    datacenters={"dc1": 3},
    schemas={"v1": list(PLACE.hosts)},
    replication=REPLICATION,
    slots={0: SlotFacts(owner="a", row_format=ROW_FORMAT)},
)
GROUP = NodeGroup(EnsemblePlace(tuple(one.address for one in MEMBERS)), PLACE, ("a", "b"))
AWAY = "[Errno 111] Connect call failed"


def of_ensemble(facts: EnsembleFacts) -> list[Finding]:
    found = Findings("paris")
    judge_ensemble(facts, found)
    return found.all


def of_journal(facts: JournalFacts, place: JournalPlace = PLACE) -> list[Finding]:
    found = Findings("paris")
    judge_journal(facts, place, found)
    return found.all


def of_nodes(facts: EnsembleFacts, group: NodeGroup = GROUP) -> list[Finding]:
    found = Findings("paris")
    judge_nodes(facts, group, found)
    return found.all


def of_reports(**nodes: Any) -> list[Finding]:
    found = Findings("paris")
    judge_reports(nodes, found)
    return found.all


def wrong(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.grade is not Grade.OK]


def check(findings: list[Finding], grade: Grade, said: str, mend: str) -> None:
    """There is exactly one finding that is not OK, and this is it."""
    (finding,) = wrong(findings)
    assert finding.grade is grade
    assert said in finding.said
    assert mend in finding.mend


async def test_without_the_clients_nothing_is_known_of_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "isthmus.doctor.server_survey", None)
    found = Findings("paris")
    await examine_servers(address_book(MESH, tmp_path), "paris", {}, found)
    check(found.all, UNKNOWN, "is not installed here", "pip install 'isthmus[cluster]'")


def test_a_site_that_is_well_has_nothing_wrong() -> None:
    findings = [*of_ensemble(ENSEMBLE), *of_journal(JOURNAL), *of_nodes(ENSEMBLE)]
    assert not wrong(findings)
    assert [one.subject for one in findings] == [
        *("ZooKeeper", "Cassandra", "commit log", "keyspace", "nodes"),
    ]


def test_a_slot_with_fewer_copies_than_there_could_be_is_found() -> None:
    facts = replace(ENSEMBLE, owners={0: "a", 1: "b", 2: "a"}, copies={0: 1, 1: 0, 2: 1})
    check(of_nodes(facts), WARNING, "slot 1 should have 1 copy at the journal's end", "wait")
    three = replace(facts, nodes=["a", "b", "c"])
    group = replace(GROUP, names=("a", "b", "c"))
    check(of_nodes(three, group), WARNING, "slots 0, 1, 2 should have 2 copies", "wait")
    once = replace(group, copies=1)
    check(of_nodes(three, once), WARNING, "slot 1 should have 1 copy", "wait")


def members(*differing: ServerAnswer, **more: Any) -> EnsembleFacts:
    """The ensemble, with these members instead of its first ones."""
    return replace(ENSEMBLE, members=[*differing, *MEMBERS[len(differing) :]], **more)


def silent(number: int) -> ServerAnswer:
    return replace(MEMBERS[number], why_not=AWAY)


def idle(number: int) -> ServerAnswer:
    return replace(MEMBERS[number], serves=False)


@pytest.mark.parametrize(
    ("facts", "grade", "said", "mend"),
    [
        (members(silent(0)), WARNING, f"z0:2181 does not answer: {AWAY}", "start that server"),
        (members(idle(0)), WARNING, "z0:2181 serves nobody", "the network between the members"),
        (
            members(silent(0), silent(1), silent(2), nodes=None),
            FAULT,
            f"nobody answers: z0:2181: {AWAY}; z1:2181",
            "start that server",
        ),
        (
            members(idle(0), idle(1), idle(2), nodes=None),
            FAULT,
            "no majority: of 3 members 3 answer, and none serves",
            "start the members",
        ),
        (
            replace(ENSEMBLE, nodes=None, login=ServerLogin("NoAuth", is_refused=True)),
            FAULT,
            "NoAuth",
            "correct `user` and `password` of `zookeeper:`",
        ),
        (
            replace(ENSEMBLE, nodes=None, login=ServerLogin("not connected")),
            FAULT,
            "not connected",
            "look into the members' logs",
        ),
        (
            replace(ENSEMBLE, members=MEMBERS[:2]),
            WARNING,
            "2 members: when one is away, no node takes over",
            "an ensemble of 3 members",
        ),
    ],
)
def test_an_ensemble(facts: EnsembleFacts, grade: Grade, said: str, mend: str) -> None:
    check(of_ensemble(facts), grade, said, mend)


def test_a_lost_majority_is_named_beside_the_members_that_are_away() -> None:
    findings = wrong(of_ensemble(members(silent(0), silent(1), idle(2), nodes=None)))
    assert [one.grade for one in findings] == [WARNING, WARNING, FAULT]
    assert "no majority: of 3 members 1 answer" in findings[-1].said


def host(**differs: Any) -> JournalFacts:
    """The journal, with a first host that differs."""
    return replace(JOURNAL, hosts=[replace(HOSTS[0], **differs), *HOSTS[1:]])


@pytest.mark.parametrize(
    ("facts", "grade", "said", "mend"),
    [
        (
            replace(JOURNAL, answers=[replace(JOURNAL.answers[0], why_not=AWAY)]),
            FAULT,
            f"nobody answers: c0:9042: {AWAY}",
            "start that server",
        ),
        (
            replace(
                JOURNAL, answers=[replace(JOURNAL.answers[0], why_not=AWAY), *JOURNAL.answers[1:]]
            ),
            WARNING,
            f"c0:9042 does not answer: {AWAY}",
            "start that server",
        ),
        (
            replace(JOURNAL, hosts=(), login=ServerLogin("incorrect", is_refused=True)),
            FAULT,
            "incorrect",
            "correct `user` and `password` of `cassandra:`",
        ),
        (
            replace(JOURNAL, hosts=(), login=ServerLogin("timed out")),
            FAULT,
            "timed out",
            "look into Cassandra's logs",
        ),
        (
            host(commitlog_sync="periodic"),
            WARNING,
            "c0:9042 has commitlog_sync: periodic",
            "set `commitlog_sync: batch`",
        ),
        (host(commitlog_sync=None), UNKNOWN, "does not say its commitlog_sync", "GRANT SELECT"),
        (host(clock_ahead_s=-60.0), WARNING, "by -60 s: nothing breaks by it", "a time server"),
        (
            replace(JOURNAL, schemas={"v1": ["c0"], "v2": ["c1", "c2"]}),
            WARNING,
            "different schemas: v1: c0; v2: c1, c2",
            "nodetool describecluster",
        ),
        (
            replace(JOURNAL, datacenters={"east": 3}),
            FAULT,
            "no data centre dc1, but east",
            "correct `datacenter:`",
        ),
        (
            replace(JOURNAL, replication=None, slots={}),
            WARNING,
            "paris is not there: the site's first node makes it",
            "CREATE KEYSPACE paris WITH replication = {'class': 'NetworkTopologyStrategy', "
            "'dc1': 3}",
        ),
        (
            replace(JOURNAL, replication={**REPLICATION, "dc1": "2"}),
            WARNING,
            "paris has 2 copies in dc1, and 3 are wanted",
            "ALTER KEYSPACE paris WITH replication",
        ),
        (
            replace(JOURNAL, replication={"class": "a.SimpleStrategy", "replication_factor": "1"}),
            WARNING,
            "paris has 1 copy in dc1",
            "ALTER KEYSPACE paris",
        ),
        (
            replace(JOURNAL, replication={**REPLICATION, "dc1": "3/1"}),
            WARNING,
            "paris has 2 copies in dc1",
            "ALTER KEYSPACE paris",
        ),
        (
            replace(JOURNAL, replication={"class": REPLICATION["class"], "east": "3"}),
            FAULT,
            "paris has no copy in dc1: nothing can be written",
            "ALTER KEYSPACE paris",
        ),
        (
            replace(JOURNAL, datacenters={"dc1": 2}),
            WARNING,
            "3 copies in dc1, and the data centre 2 hosts",
            "add hosts, or have fewer copies",
        ),
        (
            replace(JOURNAL, datacenters={"dc1": 1}),
            FAULT,
            "the data centre 1 host: nothing can be written",
            "add hosts, or have fewer copies",
        ),
        (
            replace(JOURNAL, slots={0: SlotFacts(owner="(run it again)", is_command=True)}),
            FAULT,
            "no node may take it: (run it again)",
            "do what that says",
        ),
        (
            replace(JOURNAL, slots={0: SlotFacts(owner="a", row_format=ROW_FORMAT + 1)}),
            FAULT,
            f"its rows have format {ROW_FORMAT + 1}",
            "install the newer version",
        ),
    ],
)
def test_a_journal(facts: JournalFacts, grade: Grade, said: str, mend: str) -> None:
    check(of_journal(facts), grade, said, mend)


def test_fewer_copies_are_well_where_the_mesh_file_asks_for_them() -> None:
    facts = replace(JOURNAL, replication={**REPLICATION, "dc1": "1"}, datacenters={"dc1": 1})
    assert not wrong(of_journal(facts, replace(PLACE, replication=1)))


def test_a_commit_log_in_groups_is_well() -> None:
    assert not wrong(of_journal(host(commitlog_sync="group")))


def test_the_format_of_a_row_is_readable_without_the_rest() -> None:
    row = bytearray(encode_row(Writes()))
    assert format_of_row(bytes(row)) == ROW_FORMAT
    row[4] = 9
    assert format_of_row(bytes(row)) == 9


@pytest.mark.parametrize(
    ("nodes", "owner", "grade", "said", "mend"),
    [
        ([], "", FAULT, "none is connected to ZooKeeper", "isthmus relay FILE --site paris"),
        (["a", "b"], "", FAULT, "nobody runs the site, though a, b could", "`isthmus status` has"),
        (["a", "b", "x"], "a", WARNING, "x of another mesh file", "the same file"),
    ],
)
def test_nodes(nodes: list[str], owner: str, grade: Grade, said: str, mend: str) -> None:
    check(of_nodes(replace(ENSEMBLE, nodes=nodes, owners={0: owner})), grade, said, mend)


def test_a_node_that_is_not_there_is_named_and_the_one_that_is_alone() -> None:
    findings = wrong(of_nodes(replace(ENSEMBLE, nodes=["a"])))
    assert [one.grade for one in findings] == [WARNING, WARNING]
    assert "b is not connected" in findings[0].said
    assert "--node b" in findings[0].mend
    assert "a is alone" in findings[1].said


def test_nodes_without_names_are_counted_all_the_same() -> None:
    anyone = replace(GROUP, names=())
    assert not wrong(of_nodes(ENSEMBLE, anyone))
    check(
        of_nodes(replace(ENSEMBLE, nodes=["a"]), anyone), WARNING, "a is alone", "another machine"
    )


def test_slots_are_counted_by_node_and_those_that_nobody_runs_are_named() -> None:
    shared = replace(ENSEMBLE, owners={0: "a", 1: "b", 2: "a"})
    (found,) = of_nodes(shared)
    assert (found.grade, found.said) == (Grade.OK, "slots: 2 at a, 1 at b")
    (found,) = of_nodes(replace(shared, machines={"b": "host2"}))
    assert found.said == "slots: 2 at a, 1 at b on host2"
    free = replace(ENSEMBLE, owners={0: "a", 1: "", 2: ""})
    check(of_nodes(free), FAULT, "nobody runs slots 1, 2, though a, b could", "the reason")


def test_nodes_of_different_versions_are_named() -> None:
    assert not wrong(of_nodes(replace(ENSEMBLE, versions={"a": "1.2", "b": "1.2"})))
    mixed = replace(ENSEMBLE, versions={"a": "1.2", "b": "1.3"})
    check(of_nodes(mixed), WARNING, "a has 1.2, b has 1.3", "one at a time")


def test_a_slot_in_its_keyspace_is_named_where_there_are_several() -> None:
    moved = SlotFacts(owner="(run it again)", is_command=True)
    several = replace(JOURNAL, slots={0: SlotFacts(owner="a"), 3: moved})
    check(of_journal(several), FAULT, "slot 3: no node may take it: (run it again)", "says")


def test_of_an_ensemble_that_did_not_say_nothing_is_said_of_nodes() -> None:
    assert not of_nodes(replace(ENSEMBLE, nodes=None))


SLOT = {"epoch": 3, "rows": 1200, "waiting_bytes": 0, "journal_away_s": None}


def node(state: str = "running", **more: Any) -> dict[str, Any]:
    return {"state": state, "reason": "why", "held": [], "copy": None, **more}


@pytest.mark.parametrize(
    ("report", "grade", "said", "mend"),
    [
        (
            node(held=[{**SLOT, "journal_away_s": 12.3, "waiting_bytes": 4096}]),
            FAULT,
            "a has not reached Cassandra for 12 s, and delivers nothing: 4,096 bytes wait",
            "see what is said of Cassandra",
        ),
        (node("stopped"), WARNING, "a stopped: why", "do what the reason says"),
        (
            node("standby", copy={"row": 7, "followed_s": 31.0}),
            WARNING,
            "that of a was last at the journal's end 31 s ago",
            "the log of that node",
        ),
        (
            node("standby", copy={"row": None, "followed_s": None}),
            WARNING,
            "that of a has not reached the journal's end yet",
            "wait, and look again",
        ),
    ],
)
def test_reports_of_nodes(report: dict[str, Any], grade: Grade, said: str, mend: str) -> None:
    check(of_reports(a=report, b=node(held=[SLOT])), grade, said, mend)


def test_reports_of_nodes_that_are_well_have_no_finding() -> None:
    following = node("standby", copy={"row": 1199, "followed_s": 0.2})
    assert not of_reports(a=node(held=[SLOT]), b=following, c=node("down"))
