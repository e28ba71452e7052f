"""Keys of a mesh with a multicast group in the mesh file."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from federation.brokers.broker_uri import parse_host_port
from federation.mesh import NO_MULTICAST
from federation.mesh_file.keys.lane_values import FiniteRate
from federation.mesh_file.keys.values import OneOrMore, Section, key, refuse

_EXAMPLE = "239.192.7.1:7400, or [ff15::7:1]:7400"
_LINK_LOCAL_4 = "224.0.0."


def parse_group(text: str) -> tuple[str, int]:
    """Return address and port of a group. Raises ValueError, whose text says what is wrong."""
    try:
        host, port = parse_host_port(text)
        address = ip_address(host.strip("[]"))
    except ValueError:
        raise ValueError(f"`{text}` is no address and port of a group") from None
    if not address.is_multicast:
        raise ValueError(f"{address} is no multicast address")
    if _stays_on_a_link(address):
        raise ValueError(f"datagrams to {address} stay on one link")
    return str(address), port


def _stays_on_a_link(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv4Address):
        return str(address).startswith(_LINK_LOCAL_4)
    return address.packed[1] & 0x0F <= 2  # scopes of an interface and of a link


def _group(value: object) -> object:
    if not isinstance(value, str):
        raise refuse("this is no group", f"write an address and a port, such as {_EXAMPLE}")
    try:
        parse_group(value)
    except ValueError as error:
        raise refuse(str(error), f"write one such as {_EXAMPLE}") from None
    return value


def _interface(value: object) -> object:
    if value == NO_MULTICAST:
        return value
    try:
        return str(ip_address(value)) if isinstance(value, str) else _refused_interface()
    except ValueError:
        return _refused_interface()


def _refused_interface() -> object:
    raise refuse(
        "this is no address of an interface",
        f"write the address of this site's machine in that network, or {NO_MULTICAST}",
    )


GroupText = Annotated[
    str, BeforeValidator(_group), WithJsonSchema({"type": "string", "x-type": "address:port"})
]
InterfaceText = Annotated[
    str,
    BeforeValidator(_interface),
    WithJsonSchema({"type": "string", "x-type": "address or none"}),
]


class MulticastKeys(Section):
    """Each site linked with each replayer, and one multicast group before these links."""

    group: GroupText = key(..., "address and port of the IP multicast group")
    secrets: OneOrMore = key(
        ...,
        "env:NAME or file:PATH of the group's key, the same at all sites; two while one goes to"
        " the other: the first seals, either opens. `isthmus keygen --group` makes one",
        alias="key",
    )
    rate: FiniteRate = key(
        ...,
        "most that each site sends into the group",
        trades="more: the sites behind the slowest line ask for more again, and slow all down",
    )
    replayers: OneOrMore = key(
        ...,
        "1 to 4 sites, or their tag, in order of rank: each other site is linked with all of them."
        " They answer for what a site lacks, and bring by links what the group does not",
        trades="more: the group and the links outlive more of them, and each carries all traffic",
    )
    mtu: int = key(
        1400,
        "most bytes of a datagram, without the heads of UDP and IP",
        trades="more than the network passes on whole: nothing comes by the group",
        ge=576,
        le=8900,
    )
    ttl: int = key(8, "number of routers that pass a datagram on", ge=0, le=255)
