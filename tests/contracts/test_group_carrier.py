"""Contract of a group's carrier, run over both twins."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from relay.group.carrier import GroupCarrier, GroupUnreachable
from relay.group.memory_carrier import MemoryGroup
from relay.group.udp_carrier import UdpCarrier
from tests.group_network import free_udp_port
from tests.waiting import until

Join = Callable[[str], GroupCarrier]


@pytest.fixture(params=["memory", "udp"])
async def join(request: pytest.FixtureRequest) -> AsyncIterator[Join]:
    joined: list[GroupCarrier] = []
    group, port = MemoryGroup(asyncio.get_running_loop().call_later), free_udp_port()

    def join_group(site: str) -> GroupCarrier:
        carrier: GroupCarrier
        if request.param == "memory":
            carrier = group.join(site)
        else:
            carrier = UdpCarrier("239.192.7.1", port, interface="127.0.0.1", ttl=0)
        joined.append(carrier)
        return carrier

    yield join_group
    for carrier in joined:
        carrier.close()


async def test_what_a_site_sends_comes_to_all_others_whole(join: Join) -> None:
    carriers = {site: join(site) for site in "abc"}
    heard: dict[str, list[bytes]] = {site: [] for site in carriers}
    for site, carrier in carriers.items():
        carrier.listen(heard[site].append)
    sent = [bytes([number]) * (1 + 15 * number) for number in range(90)]
    for datagram in sent:
        carriers["a"].send(datagram)
    for site in "bc":
        await until(lambda site=site: sorted(heard[site]) == sorted(sent), "all come", 30)


async def test_who_has_left_hears_nothing_and_others_go_on(join: Join) -> None:
    one, other, gone = join("one"), join("other"), join("gone")
    heard: list[bytes] = []
    missed: list[bytes] = []
    other.listen(heard.append)
    gone.listen(missed.append)
    gone.close()
    one.send(b"hello")
    await until(lambda: heard == [b"hello"], "it comes", 30)
    assert missed == []


async def test_a_group_that_cannot_be_joined_is_unreachable() -> None:
    with pytest.raises(GroupUnreachable, match=r"239\.192\.7\.1 is not to be joined"):
        UdpCarrier("239.192.7.1", free_udp_port(), interface="192.0.2.1")
    with pytest.raises(GroupUnreachable, match="no interface has the address 2001:db8::1"):
        UdpCarrier("ff15::7:1", free_udp_port(), interface="2001:db8::1")
    group = MemoryGroup(asyncio.get_running_loop().call_later)
    carrier = group.join("one")
    group.is_there = False
    with pytest.raises(GroupUnreachable):
        group.join("two")
    with pytest.raises(GroupUnreachable):
        carrier.send(b"hello")


async def test_a_socket_that_cannot_be_made_leaves_the_group_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*how: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "no such family here")

    monkeypatch.setattr("relay.group.udp_carrier.socket.socket", refused)
    with pytest.raises(GroupUnreachable, match="no such family here"):
        UdpCarrier("ff15::7:1", 7400)
