"""Rights of meshes so large that RabbitMQ would not take a pattern of all names."""

from __future__ import annotations

import re
import secrets

import pytest

from federation.brokers.credentials import make_credentials
from federation.brokers.provision import declarations
from federation.brokers.users import UserDeclaration, links_meeting_at, site_users
from federation.mesh import Mesh
from federation.names import LONGEST_PATTERN_BYTES, Names, slot_names
from isthmus.brokers.config import BrokerUser
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost

MANY_SLOTS = """\
mesh: acme
topology: complete
exchanges: [{name: orders}, {name: prices}, {name: news}]
sites: {hub: {slots: 64, brokers: 3}, tokyo: {slots: 32}, lima: {}}
"""
SHOPS = [f"shop-{number:03}" for number in range(150)]
MANY_LINKS = f"""\
mesh: acme
topology: {{hub: hub}}
exchanges: [{", ".join(f"{{name: application.exchange-{n}}}" for n in range(120))}]
sites: {{hub: {{}}, {", ".join(f"{shop}: {{}}" for shop in SHOPS)}}}
"""
NAMES = Names("acme")


def users_of(mesh: Mesh) -> dict[str, UserDeclaration]:
    return {user.name: user for user in site_users(mesh, "hub", make_credentials(mesh))}


def may(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


@pytest.mark.parametrize("text", [MANY_SLOTS, MANY_LINKS], ids=["slots", "links"])
def test_no_pattern_is_longer_than_rabbitmq_takes(text: str) -> None:
    mesh = mesh_of(text)
    patterns = [right for user in users_of(mesh).values() for right in user.rights.values()]
    patterns += [one.pattern for one in declarations(mesh, "hub", make_credentials(mesh)).policies]
    assert max(len(one.encode()) for one in patterns) <= LONGEST_PATTERN_BYTES


@pytest.mark.parametrize("text", [MANY_SLOTS, MANY_LINKS], ids=["slots", "links"])
def test_each_end_of_a_link_may_do_its_part_of_all_its_links_and_nothing_of_others(
    text: str,
) -> None:
    mesh = mesh_of(text)
    users = users_of(mesh)
    for link in links_meeting_at(mesh, "hub"):
        data, acks = NAMES.link_data(link), NAMES.link_acks(link)
        sender, receiver = (users[NAMES.link_user(end)] for end in (link.sender, link.receiver))
        assert may(sender.write, data)
        assert may(sender.read, acks)
        assert may(receiver.read, data)
        assert may(receiver.write, acks)
        assert not may(sender.read, data)
        assert not may(sender.write, acks)
        for pattern in (sender.write, sender.read):
            assert may(pattern, NAMES.sender_queue(link))
            assert not may(pattern, NAMES.receiver_queue(link))
            assert not may(pattern, "orders")
            assert not may(pattern, "")
            assert not may(pattern, NAMES.log)
    others = [one for one in links_meeting_at(mesh, "hub") if "hub" not in (one.sender,)]
    for link in others[:40]:
        assert not may(users[NAMES.link_user("hub")].write, NAMES.link_data(link))


def test_the_sites_own_users_reach_each_slot_and_nothing_of_each_other() -> None:
    mesh = mesh_of(MANY_SLOTS)
    users = users_of(mesh)
    relay, packer = users[NAMES.relay_user("hub")], users[NAMES.packer_user("hub")]
    log, keeper = users[NAMES.log_user("hub")], users[NAMES.keeper_user("hub")]
    for slot in slot_names(mesh, "hub"):
        assert may(relay.configure, slot.deliverer_lock)
        assert may(relay.write, slot.dead_letters)
        assert may(relay.write, slot.quarantine)
        assert may(relay.read, slot.deliverer_lease)
        assert may(packer.configure, slot.packer_lock)
        assert may(packer.write, slot.packer_lease)
        assert may(packer.read, slot.packer_lease)
        assert may(log.write, slot.log)
        assert may(log.read, slot.log)
        assert may(keeper.read, slot.dead_letters)
        for pattern in (relay.configure, relay.write, relay.read, log.write, keeper.read):
            assert not may(pattern, slot.packer_lock)
            assert not may(pattern, slot.packer_lease)
        for pattern in (packer.configure, packer.write, packer.read, keeper.read):
            assert not may(pattern, slot.log)
    assert may(packer.read, NAMES.egress("orders"))
    assert not may(packer.write, "orders")
    assert may(relay.write, "orders")
    for name in ("", "amq.default"):
        assert not may(relay.write, name)
    assert not may(relay.write, f"{NAMES.log}.s1")


@pytest.mark.live
async def test_the_broker_takes_the_rights_of_a_large_mesh(vhost: Vhost) -> None:
    for text in (MANY_SLOTS, MANY_LINKS):
        for number, user in enumerate(users_of(mesh_of(text)).values()):
            if number > 10:
                break  # shops are alike
            name = f"{user.name}.{secrets.token_hex(4)}"
            await vhost.add_user(
                BrokerUser(name, "secret", (), user.configure, user.write, user.read)
            )
