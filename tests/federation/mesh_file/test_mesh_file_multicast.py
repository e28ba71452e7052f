"""A mesh with a multicast group: its links, what goes over the group, and what is refused."""

from __future__ import annotations

import pytest

from federation.mesh import MulticastGroup
from federation.mesh_file.problem import Severity
from federation.multicast import group_exchanges, group_sites
from tests.federation.marked import the_error
from tests.federation.meshes import mesh_of, problems_of
from tests.signed_batches import public_key

SITES = ("paris", "tokyo", "lima", "oslo")
GROUP = """\
mesh: acme
topology:
  multicast: {group: "239.192.7.1:7400", key: file:group.key, rate: 2MB/s, replayers: [paris]}
signing: ed25519
batch_format: 2
exchanges: [{name: orders}]
sites:
""" + "".join(
    f"  {site}: {{public_key: {public_key(site)}, private_key: file:{site}.pem}}\n"
    for site in SITES
)


def with_keys(text: str, site: str, keys: str) -> str:
    """The file with further keys of a site."""
    return text.replace(f"  {site}: {{", f"  {site}: {{{keys}, ")


def exchanges(text: str) -> str:
    return GROUP.replace("[{name: orders}]", text)


def test_each_site_is_linked_with_each_replayer_at_whose_broker_they_meet() -> None:
    mesh = mesh_of(GROUP.replace("[paris]", "[tokyo, paris]"))
    assert mesh.group is not None
    assert mesh.group.replayers == ("tokyo", "paris")
    links = {(link.sender, link.receiver): link.meeting for link in mesh.links}
    assert set(links) == {
        (one, other)
        for one in SITES
        for other in SITES
        if one != other and {one, other} & {"tokyo", "paris"}
    }
    assert links["oslo", "paris"] == links["paris", "oslo"] == "paris"


def test_a_group_has_defaults_and_its_key_belongs_to_no_revision_but_by_its_name() -> None:
    mesh = mesh_of(GROUP)
    assert mesh.group is not None
    assert mesh.group == MulticastGroup(
        "239.192.7.1", 7400, mesh.group.keys, 2_000_000, ("paris",), mtu=1400, ttl=8
    )
    assert mesh.revision != mesh_of(GROUP.replace("2MB/s", "3MB/s")).revision
    assert mesh.revision != mesh_of(with_keys(GROUP, "oslo", "multicast: none")).revision


def test_exchanges_go_over_the_group_that_all_ways_carry_as_a_whole() -> None:
    assert group_exchanges(mesh_of(GROUP)) == {"orders"}
    assert group_sites(mesh_of(GROUP)) == set(SITES)
    assert not group_exchanges(mesh_of(with_keys(GROUP, "oslo", "wants: {orders: [a.#]}")))
    few = "[{name: orders, to: [paris, tokyo]}, {name: prices, to: [paris, tokyo, lima]}]"
    assert group_exchanges(mesh_of(exchanges(few))) == {"prices"}
    kept_off = "[{name: orders, never_via: [oslo]}, {name: prices}]"
    assert group_exchanges(mesh_of(exchanges(kept_off))) == {"prices"}
    less = with_keys(
        exchanges("[{name: orders, to: [tokyo, lima, oslo]}]"), "oslo", "multicast: none"
    )
    assert not group_exchanges(mesh_of(less))
    assert group_sites(mesh_of(less)) == {"paris", "tokyo", "lima"}


def test_exchanges_that_go_over_the_group_are_of_one_lane_that_of_most() -> None:
    text = exchanges("[{name: a, lane: urgent}, {name: b}, {name: c, lane: urgent}]")
    laned = mesh_of(f"{text}lanes: [urgent, normal]\n")
    assert group_exchanges(laned) == {"a", "c"}


@pytest.mark.parametrize("group", ["239.192.7.1:7400", "[ff15::7:1]:7400", "224.1.2.3:1"])
def test_groups_of_both_protocols(group: str) -> None:
    mesh = mesh_of(GROUP.replace("239.192.7.1:7400", group))
    assert mesh.group is not None
    assert mesh.group.address in group


def test_no_exchange_for_the_group_is_a_warning() -> None:
    found = problems_of(exchanges("[{name: orders, to: [paris, tokyo]}]"))
    said = [one.wrong for one in found if one.severity is Severity.WARNING]
    assert any("no exchange goes over the group" in one for one in said), said


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        (GROUP.replace("rate: 2MB/s, ", "").replace("  multicast: {", "  multicast: ^{"), "rate"),
        (
            GROUP.replace("key: file:group.key, ", "").replace("multicast: {", "multicast: ^{"),
            "key",
        ),
        (GROUP.replace("file:group.key", "^secret"), "this is neither env:NAME nor file:PATH"),
        (GROUP.replace("file:group.key", "^[file:a, file:b, file:c]"), "these are 3 keys"),
        (GROUP.replace('"239.192.7.1:7400"', '^"10.0.0.1:7400"'), "10.0.0.1 is no multicast addr"),
        (GROUP.replace('"239.192.7.1:7400"', '^"224.0.0.9:7400"'), "to 224.0.0.9 stay on one link"),
        (GROUP.replace('"239.192.7.1:7400"', '^"[ff02::1]:7400"'), "to ff02::1 stay on one link"),
        (GROUP.replace('"239.192.7.1:7400"', '^"239.192.7.1"'), "no address and port of a group"),
        (GROUP.replace('"239.192.7.1:7400"', "^7"), "this is no group; write an address and a p"),
        (GROUP.replace("[paris]", "[^pariss]"), "there is no site `pariss`; did you mean `paris`?"),
        (GROUP.replace("[paris]}", "[paris], mtu: ^575}"), "at least 576"),
        (GROUP.replace("[paris]}", "[paris], mtu: ^8901}"), "at most 8900"),
        (with_keys(GROUP, "paris", "multicast: ^none"), "`paris` is a replayer, and no member of"),
        (with_keys(GROUP, "oslo", "multicast: ^eth0"), "this is no address of an interface"),
        (with_keys(GROUP, "oslo", "slots: ^2"), "a site of several slots is no member of a group"),
        (GROUP + "both: ^false\n", "links of a group's sites go both ways"),
    ],
)
def test_what_is_wrong_with_a_group_is_said_at_its_place(marked: str, said: str) -> None:
    assert said in the_error(marked)
