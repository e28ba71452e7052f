"""Findings of `isthmus doctor` about a site's membership in the mesh's multicast group."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federation.group_key import new_group_key
from federation.mesh import MulticastGroup
from isthmus.doctor import interfaces
from isthmus.doctor.finding import Finding, Findings, Grade
from isthmus.doctor.interfaces import InterfaceFacts, facts_of, interface_with
from isthmus.doctor.multicast import (
    LEAST_SENT,
    examine_group,
    examine_group_here,
    judge_buffer,
    judge_group,
    judge_interface,
)
from isthmus.group_hearing import LEAST_PULSES, UNHEARD_S
from isthmus.known.address_book import address_book
from tests.federation.mesh_file.test_mesh_file_multicast import GROUP, with_keys
from tests.federation.meshes import TRIANGLE, mesh_of
from tests.isthmus.test_group_hearing import all_well, heard, member
from tests.isthmus.test_status_tables import site

MESH = mesh_of(GROUP)
GROUP_OF_MESH = MulticastGroup("239.192.7.1", 7400, ("env:KEY",), 2_000_000, ("paris",), 1400, 0)
KEY = {"KEY": new_group_key()}
LONG = UNHEARD_S + 15
ON_LOOPBACK = replace(MESH.sites["lima"], multicast="127.0.0.1")


def judged(sites: dict[str, Any], name: str = "lima") -> list[Finding]:
    found = Findings(name)
    judge_group(sites, GROUP_OF_MESH, found)
    return found.all


def of_lima(others: dict[str, dict[str, Any]], **more: Any) -> Finding:
    (finding,) = judged(all_well(lima=member("lima", others, **more)))
    return finding


def test_a_site_that_hears_all_is_well() -> None:
    (finding,) = judged(all_well())
    assert (finding.grade, finding.said) == (Grade.OK, "the site hears all 2 others")


def test_a_site_that_does_not_hear_another_is_named_whether_or_not_that_publishes() -> None:
    finding = of_lima({"tokyo": heard(s_ago=LONG)})
    assert finding.grade is Grade.WARNING
    assert finding.said == "the site does not hear tokyo, for 45 s"
    assert finding.mend.startswith("see that all routers between pass 239.192.7.1 on")


def test_where_nothing_comes_in_at_all_the_site_itself_is_to_be_looked_at() -> None:
    silent = heard(s_ago=LONG)
    finding = of_lima({"tokyo": silent, "paris": silent})
    assert finding.said == "the site does not hear paris, tokyo, for 45 s"
    assert "let the firewall pass UDP port 7400" in finding.mend


def test_silence_with_datagrams_of_another_mesh_file_is_of_the_mesh_files() -> None:
    finding = of_lima({"tokyo": heard(s_ago=LONG)}, of_another_mesh_file=1_200)
    assert "1,200 came of another mesh file" in finding.said
    assert finding.mend.startswith("compare the mesh files")


def test_silence_with_foreign_datagrams_is_of_another_key() -> None:
    finding = of_lima({"tokyo": heard(s_ago=LONG)}, foreign=1_200)
    assert "1,200 datagrams came that this group's key does not open" in finding.said
    assert finding.mend.startswith("compare the group's key")


def test_datagrams_too_large_for_the_way_are_named_with_the_mtu() -> None:
    finding = of_lima({"tokyo": heard(pulses_alone=LEAST_PULSES)})
    assert finding.said == "large datagrams of tokyo do not come, small ones do"
    assert "lower `mtu` of the group, 1400 bytes" in finding.mend


@pytest.mark.parametrize(
    ("sent", "missing", "grade"),
    [(1000, 100, Grade.OK), (1000, 230, Grade.WARNING), (LEAST_SENT - 1, 90, Grade.OK)],
)
def test_a_loss_that_slows_others_down_is_named(sent: int, missing: int, grade: Grade) -> None:
    finding = of_lima({"tokyo": heard(sent=sent, missing=missing)})
    assert finding.grade is grade
    assert ("the site loses 23 % of what tokyo sends" in finding.said) is (grade is Grade.WARNING)


def test_a_site_that_is_away_is_at_fault_with_the_reason() -> None:
    (finding,) = judged(all_well(lima=site(group={"away": "no route"})))
    assert finding.grade is Grade.FAULT
    assert finding.said.endswith("links bring all: no route")
    assert judged(all_well(lima=site(state="down"))) == []


def here(group: MulticastGroup = GROUP_OF_MESH, **more: Any) -> Findings:
    found = Findings("lima")
    arguments = {"site": ON_LOOPBACK, "environ": KEY, "report": {}, **more}
    examine_group_here(group, arguments["site"], arguments["environ"], arguments["report"], found)
    return found


async def test_nothing_is_found_where_all_is_there() -> None:
    assert here().all == []


@pytest.mark.parametrize(
    ("environ", "said"),
    [({}, "no key of the multicast group"), ({"KEY": "c2hvcnQ="}, "has 5 bytes, not 32")],
)
async def test_a_key_that_is_missing_or_broken_is_at_fault(
    environ: dict[str, str], said: str
) -> None:
    (finding,) = here(environ=environ).all
    assert finding.grade is Grade.FAULT
    assert said in finding.said
    assert "put the other sites' key there" in finding.mend
    # Who is a member has it, by an environment of its own.
    assert here(environ=environ, report=member("lima")).all == []


async def test_a_group_that_cannot_be_joined_is_at_fault() -> None:
    elsewhere = replace(ON_LOOPBACK, multicast="192.0.2.1")
    (finding,) = here(site=elsewhere).all
    assert finding.grade is Grade.FAULT
    assert finding.said.startswith("239.192.7.1 is not to be joined")
    assert "write the address of an interface of this machine" in finding.mend


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (InterfaceFacts("eth0"), ""),
        (InterfaceFacts("eth0", mtu=1428, speed=16_000_000), ""),
        (InterfaceFacts("eth0", mtu=1427), "does not go out whole by eth0, whose MTU is 1427"),
        (InterfaceFacts("eth0", speed=10_000_000), "16 Mbit/s, is more than eth0 carries, 10 Mbit"),
    ],
)
def test_datagrams_and_rate_have_to_fit_the_interface(facts: InterfaceFacts, said: str) -> None:
    found = Findings("lima")
    judge_interface(facts, GROUP_OF_MESH, found)
    assert said in "".join(one.said for one in found.all)
    assert len(found.all) == bool(said)


@pytest.mark.parametrize(
    ("mbit", "buffer_bytes", "said"),
    [
        (20, 125_000, ""),
        (40, 212_992, "the kernel keeps 212,992 bytes of datagrams; at the group's rate 250,000 "),
        (10_000, 2**23, ""),
    ],
)
def test_the_kernel_has_to_keep_what_comes_meanwhile(
    mbit: int, buffer_bytes: int, said: str
) -> None:
    found = Findings("lima")
    judge_buffer(buffer_bytes, replace(GROUP_OF_MESH, rate=mbit * 125_000), found)
    assert [said in one.said for one in found.all] == [True] * bool(said)


def test_the_heads_of_ip_6_are_larger() -> None:
    found = Findings("lima")
    group = replace(GROUP_OF_MESH, address="ff15::7:1")
    judge_interface(InterfaceFacts("eth0", mtu=1440), group, found)
    assert "write mtu: 1392, or less" in found.all[0].mend


def test_an_interface_is_known_by_its_address() -> None:
    loopback = interface_with("127.0.0.1")
    assert loopback is not None
    assert loopback.name in {name for _, name in socket.if_nameindex()}
    assert interface_with("192.0.2.1") is None


def test_what_the_kernel_does_not_know_of_an_interface_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interfaces, "INTERFACES", tmp_path)
    for name, speed in (("eth0", "1000"), ("eth1", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mtu").write_text("9000\n")
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    assert facts_of("eth0") == InterfaceFacts("eth0", 9000, 1_000_000_000)
    assert facts_of("eth1") == InterfaceFacts("eth1", 9000, None)
    assert facts_of("eth2") == InterfaceFacts("eth2", None, None)


def test_an_address_of_ip_6_is_looked_up_in_the_kernels_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "if_inet6"
    listed.write_text("fd000000000000000000000000000005 02 40 00 80     eth7\n")
    monkeypatch.setattr(interfaces, "ADDRESSES_6", listed)
    assert interface_with("fd00::5") == InterfaceFacts("eth7")
    assert interface_with("fd00::6") is None


async def test_only_what_is_on_this_machine_is_looked_at_here(tmp_path: Path) -> None:
    text = with_keys(
        GROUP, "lima", "broker: 'amqps://u@h/v', password: env:P, multicast: 127.0.0.1"
    )
    book = address_book(mesh_of(text), tmp_path)
    assert examine_group(book, "lima", tmp_path, all_well(lima=site(state="unknown"))).all == []
    (tmp_path / "sites" / "lima").mkdir(parents=True)
    (finding,) = examine_group(book, "lima", tmp_path, all_well(lima=site(state="unknown"))).all
    assert "no key of the multicast group" in finding.said


async def test_what_is_found_here_and_reported_is_said_once(tmp_path: Path) -> None:
    book = address_book(mesh_of(with_keys(GROUP, "lima", "multicast: 127.0.0.1")), tmp_path)
    (first,) = examine_group(book, "lima", tmp_path, all_well(lima=site())).all
    away = site(group={"away": first.said})
    assert examine_group(book, "lima", tmp_path, all_well(lima=away)).all == [first]


async def test_a_site_that_is_no_member_has_nothing_to_be_found(tmp_path: Path) -> None:
    book = address_book(mesh_of(with_keys(GROUP, "lima", "multicast: none")), tmp_path)
    assert examine_group(book, "lima", tmp_path, {"lima": site()}).all == []
    other = address_book(mesh_of(TRIANGLE), tmp_path / "other")
    assert examine_group(other, "paris", tmp_path, {"paris": site()}).all == []
