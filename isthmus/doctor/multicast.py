"""Examination of a site's membership in its mesh's multicast group: what its node reports, and what
the group needs on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

from federation.brokers.addresses import AddressBook
from federation.group_key import GroupKeyUnusable, load_group_key
from federation.lanes import show_rate
from federation.mesh import MulticastGroup, Site
from federation.multicast import group_sites
from isthmus.doctor.finding import Findings
from isthmus.doctor.interfaces import InterfaceFacts, address_towards, interface_with
from isthmus.group_hearing import (
    SiteReports,
    heard_by,
    is_member,
    lost_part,
    only_small_come,
    unheard_sites,
)
from relay.group.carrier import GroupUnreachable
from relay.group.udp_carrier import UdpCarrier
from relay.node.site_folder import site_folder

SUBJECT = "multicast"
LOST_AT_MOST = 0.1
"""Part of what a site sends that another may lose before the rate falls."""
LEAST_SENT = 100
"""Datagrams from which a loss is judged."""
_BUSY_S = 0.05
"""Time for which a node may be busy with other work."""
_USUAL_BUFFER = 8 * 1024 * 1024
"""Bytes of which a node asks the kernel."""
_HEADS = {4: 28, 6: 48}
"""Bytes of the heads of UDP and IP, by the version of IP."""


def examine_group(book: AddressBook, site: str, state: Path, sites: SiteReports) -> Findings:
    """Examine a site's membership; nothing is found of a site that is no member. `sites` are all
    sites' parts of a status report.
    """
    found, mesh = Findings(site), book.mesh
    if mesh.group is None or site not in group_sites(mesh):
        return found
    if _is_here(mesh.sites[site], state):
        examine_group_here(mesh.group, mesh.sites[site], book.environ, sites[site], found)
    judge_group(sites, mesh.group, found)
    return found


def _is_here(site: Site, state: Path) -> bool:
    """Return True if the site's node is on this machine, or was, or is to be."""
    is_private = site.broker is None and site.admin is None
    return is_private or site_folder(state, site.name).is_dir()


# -- reports --------------------------------------------------------------------------------------


def judge_group(sites: SiteReports, group: MulticastGroup, found: Findings) -> None:
    """Judge what the site's node reports, beside the reports of others."""
    report = sites[found.site]
    if "group" not in report:
        return  # what is said of its node comes first
    if not is_member(report):
        away = report["group"]["away"]
        if any(one.said == away for one in found.all):
            return  # found here as well
        found.fault(
            SUBJECT,
            f"the site is not in the group, and links bring all: {away}",
            "mend that, and the node joins by itself; where the network has no IP multicast,"
            " write multicast: none at the site",
        )
        return
    _judge_hearing(sites, group, found)
    _judge_sizes(sites, group, found)
    _judge_loss(sites, group, found)
    if found.well:
        found.ok(SUBJECT, f"the site hears all {len(heard_by(report))} others")


def _judge_hearing(sites: SiteReports, group: MulticastGroup, found: Findings) -> None:
    figures = sites[found.site]["group"]
    for unheard in unheard_sites(sites, publishing=False):
        if unheard.site != found.site:
            continue
        said = f"the site does not hear {', '.join(unheard.others)}, for {unheard.least_s:.0f} s"
        if figures.get("foreign"):
            said += f"; {figures['foreign']:,} datagrams came that this group's key does not open"
        if figures.get("of_another_mesh_file"):
            said += f"; {figures['of_another_mesh_file']:,} came of another mesh file"
        mends = [
            f"see that all routers between pass {group.address} on (IGMP, PIM; `ttl` {group.ttl})"
        ]
        if figures.get("of_another_mesh_file"):
            mends.insert(0, "compare the mesh files: members, replayers, exchanges of the group")
        elif figures.get("foreign"):
            mends.insert(0, "compare the group's key here with the key there")
        elif len(unheard.others) == len(figures["heard"]):
            mends = [
                f"let the firewall pass UDP port {group.port}",
                "see that `multicast:` of the site names the interface where the group comes in",
                *mends,
            ]
        found.warn(SUBJECT, said, "; ".join(mends))


def _judge_sizes(sites: SiteReports, group: MulticastGroup, found: Findings) -> None:
    for site, others in only_small_come(sites):
        if site == found.site:
            found.warn(
                SUBJECT,
                f"large datagrams of {', '.join(others)} do not come, small ones do",
                f"lower `mtu` of the group, {group.mtu} bytes, to what the network passes on whole",
            )


def _judge_loss(sites: SiteReports, group: MulticastGroup, found: Findings) -> None:
    for other, figures in heard_by(sites[found.site]).items():
        part = lost_part(figures)
        if part > LOST_AT_MOST and figures["sent"] >= LEAST_SENT:
            found.warn(
                SUBJECT,
                f"the site loses {100 * part:.0f} % of what {other} sends, which so slows down",
                f"lower `rate` of the group, {show_rate(group.rate)}, to what the site's line"
                " carries; or see why that line loses so much",
            )


# -- this machine ---------------------------------------------------------------------------------


def examine_group_here(
    group: MulticastGroup,
    site: Site,
    environ: Mapping[str, str],
    report: Mapping[str, object],
    found: Findings,
) -> None:
    """Examine key, network and interface, from an event loop."""
    if not is_member(report):
        # A member has its key, perhaps by another environment than this one's.
        _examine_keys(group, environ, found)
    try:
        carrier = UdpCarrier(group.address, group.port, interface=site.multicast, ttl=group.ttl)
        buffer_bytes = carrier.buffer_bytes
        carrier.close()
        interface = interface_with(site.multicast or address_towards(group.address, group.port))
    except (GroupUnreachable, OSError) as error:
        found.fault(SUBJECT, str(error), _mend_network(group, site))
        return
    judge_buffer(buffer_bytes, group, found)
    if interface is not None:
        judge_interface(interface, group, found)


def _examine_keys(group: MulticastGroup, environ: Mapping[str, str], found: Findings) -> None:
    for where in group.keys:
        try:
            load_group_key(where, environ)
        except GroupKeyUnusable as error:
            found.fault(
                SUBJECT,
                str(error),
                "put the other sites' key there, readable for the node's user; the node looks again"
                " every ten seconds",
            )


def _mend_network(group: MulticastGroup, site: Site) -> str:
    if site.multicast:
        mend = "write the address of an interface of this machine as `multicast:` of the site"
    else:
        mend = (
            f"give the machine a route to {group.address}, or write the address of the interface"
            " as `multicast:` of the site"
        )
    return f"{mend}; where the network has no IP multicast, write multicast: none there"


def judge_buffer(buffer_bytes: int, group: MulticastGroup, found: Findings) -> None:
    """Judge whether the kernel keeps what comes while the node has other work."""
    needed = min(round(group.rate * _BUSY_S), _USUAL_BUFFER)
    if buffer_bytes < needed:
        found.warn(
            SUBJECT,
            f"the kernel keeps {buffer_bytes:,} bytes of datagrams; at the group's rate"
            f" {needed:,} come while the node is busy for {1000 * _BUSY_S:.0f} ms, and it drops the"
            " rest",
            f"sysctl -w net.core.rmem_max={_USUAL_BUFFER}, on the machines of all sites, and start"
            " the nodes anew",
        )


def judge_interface(interface: InterfaceFacts, group: MulticastGroup, found: Findings) -> None:
    """Judge whether datagrams and rate of the group fit the interface that it is sent by."""
    heads = _HEADS[ip_address(group.address).version]
    if interface.mtu is not None and group.mtu + heads > interface.mtu:
        found.warn(
            SUBJECT,
            f"a datagram of {group.mtu} bytes does not go out whole by {interface.name}, whose MTU"
            f" is {interface.mtu}: if one fragment is lost, all is",
            f"write mtu: {interface.mtu - heads}, or less, in the group",
        )
    if interface.speed is not None and 8 * group.rate > interface.speed:
        found.warn(
            SUBJECT,
            f"the group's rate, {8 * group.rate / 10**6:g} Mbit/s, is more than {interface.name}"
            f" carries, {interface.speed / 10**6:g} Mbit/s",
            "lower `rate` of the group below the slowest line of all its sites",
        )
