"""What must exist at a site's broker."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from federation.brokers.credentials import make_credentials
from federation.brokers.provision import (
    ONE_AT_A_TIME,
    BindingDeclaration,
    Declarations,
    declarations,
)
from federation.brokers.users import UserDeclaration, guests, site_users
from federation.mesh import Mesh
from federation.names import Names
from tests.federation.meshes import TRIANGLE, mesh_of

NAMES = Names("acme")


def declared(mesh: Mesh, site: str) -> Declarations:
    return declarations(mesh, site, make_credentials(mesh))


def exchanges(mesh: Mesh, site: str) -> dict[str, str]:
    return {one.name: one.type for one in declared(mesh, site).exchanges}


def egress_bindings(mesh: Mesh, site: str) -> list[BindingDeclaration]:
    return [one for one in declared(mesh, site).bindings if one.exchange != one.queue]


def may(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def with_exchange(exchange: str) -> Mesh:
    return mesh_of(TRIANGLE.replace('{name: orders, keys: ["order.#"]}', exchange))


def test_a_transparent_exchange_is_declared_once_wherever_it_leaves_or_arrives() -> None:
    mesh = with_exchange("{name: o, type: direct, keys: [k], from: [paris], to: [tokyo]}")
    assert exchanges(mesh, "paris")["o"] == "direct"
    assert exchanges(mesh, "tokyo")["o"] == "direct"
    assert "o" not in exchanges(mesh, "sydney")


def test_a_split_exchange_has_one_side_where_it_leaves_and_one_where_it_arrives() -> None:
    mesh = with_exchange("{name: o, mode: split, from: [paris], to: [tokyo]}")
    assert {"o", "o.in"} & set(exchanges(mesh, "paris")) == {"o"}
    assert {"o", "o.in"} & set(exchanges(mesh, "tokyo")) == {"o.in"}
    everywhere = with_exchange("{name: o, mode: split}")
    assert {"o", "o.in"} <= set(exchanges(everywhere, "sydney"))


def test_egress_is_bound_with_each_key_where_the_exchange_leaves_and_only_there() -> None:
    mesh = with_exchange("{name: o, keys: [a, 'b.#'], from: [paris]}")
    bindings = egress_bindings(mesh, "paris")
    assert [(b.exchange, b.queue, b.key) for b in bindings] == [
        ("o", "isthmus.acme.egress.o", "a"),
        ("o", "isthmus.acme.egress.o", "b.#"),
    ]
    assert egress_bindings(mesh, "tokyo") == []
    assert NAMES.egress("o") not in [queue.name for queue in declared(mesh, "tokyo").queues]


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_all_of_an_exchange_without_keys_is_bound_once(kind: str) -> None:
    mesh = with_exchange(f"{{name: o, type: {kind}}}")
    assert [binding.key for binding in egress_bindings(mesh, "paris")] == [""]


def test_every_site_has_a_log_dead_letters_and_quarantine() -> None:
    for site in ("paris", "tokyo", "sydney"):
        queues = {q.name: q.arguments for q in declared(mesh_of(TRIANGLE), site).queues}
        assert queues[NAMES.log]["x-queue-type"] == "stream"
        assert "x-max-age" not in queues[NAMES.log]
        for name in (NAMES.dead_letters, NAMES.quarantine, NAMES.egress("orders")):
            assert queues[name] == {"x-queue-type": "quorum", "x-delivery-limit": 2147483647}


def test_where_priorities_may_not_change_the_order_egress_is_a_classic_queue() -> None:
    mesh = mesh_of(TRIANGLE.replace("name: orders,", "name: orders, priorities: order,"))
    queues = {queue.name: queue.arguments for queue in declared(mesh, "paris").queues}
    assert queues[NAMES.egress("orders")] == {"x-queue-type": "classic", "x-queue-version": 2}
    assert queues[NAMES.dead_letters]["x-queue-type"] == "quorum"


def test_only_a_cluster_has_leases_and_its_users_the_rights_to_them() -> None:
    alone = mesh_of(TRIANGLE)
    cluster = mesh_of(TRIANGLE.replace("paris: {}", "paris: {brokers: 3}"))
    leases = {NAMES.packer_lease, NAMES.deliverer_lease}
    assert leases.isdisjoint(queue.name for queue in declared(alone, "paris").queues)
    assert not any(ONE_AT_A_TIME in queue.arguments for queue in declared(alone, "paris").queues)
    assert declared(cluster, "tokyo").queues == declared(alone, "tokyo").queues

    queues = {queue.name: queue.arguments for queue in declared(cluster, "paris").queues}
    assert queues[NAMES.egress("orders")][ONE_AT_A_TIME] is True
    assert ONE_AT_A_TIME not in queues[NAMES.dead_letters]
    for name in leases:
        assert queues[name][ONE_AT_A_TIME] is True
        assert exchanges(cluster, "paris")[name] == "fanout"
        assert BindingDeclaration(name, name, "") in declared(cluster, "paris").bindings
    users = {user.name: user for user in declared(cluster, "paris").users}
    for user, own, other in (
        (NAMES.packer_user("paris"), NAMES.packer_lease, NAMES.deliverer_lease),
        (NAMES.relay_user("paris"), NAMES.deliverer_lease, NAMES.packer_lease),
    ):
        rights = users[user]
        assert may(rights.read, own)
        assert may(rights.write, own)
        assert not may(rights.read, other)
        assert not may(rights.write, other)


def test_what_is_put_aside_has_exchanges_of_its_own_that_lead_nowhere_else() -> None:
    mesh = mesh_of(TRIANGLE)
    for name in (NAMES.dead_letters, NAMES.quarantine):
        assert exchanges(mesh, "paris")[name] == "fanout"
        bound = [one for one in declared(mesh, "paris").bindings if one.exchange == name]
        assert bound == [BindingDeclaration(name, name, "")]


def test_the_logs_policy_keeps_the_window_and_a_margin_and_matches_nothing_else() -> None:
    [policy] = declared(mesh_of(TRIANGLE), "paris").policies
    assert policy.definition == {"max-age": f"{int(72 * 3600 * 1.1)}s"}
    assert may(policy.pattern, NAMES.log)
    assert not may(policy.pattern, "isthmus.acme2.log")
    assert not may(policy.pattern, NAMES.log + "s")


def test_a_links_exchanges_are_at_its_meeting_broker_and_only_there() -> None:
    mesh = mesh_of(TRIANGLE + "links: [{from: paris, to: tokyo, both: true, dial: from}]\n")
    there = [link for link in mesh.links if {link.sender, link.receiver} == {"paris", "tokyo"}]
    for link in there:
        for name in (NAMES.link_data(link), NAMES.link_acks(link)):
            assert exchanges(mesh, "paris")[name] == "fanout"
            assert name not in exchanges(mesh, "tokyo")


def link_users(mesh: Mesh, site: str) -> dict[str, UserDeclaration]:
    users = {user.name: user for user in declared(mesh, site).users}
    return {name: user for name, user in users.items() if ".link." in name}


def test_each_site_with_an_end_of_a_link_at_a_broker_has_a_user_there_and_nobody_else() -> None:
    one_way = mesh_of(TRIANGLE.replace("both: true", "both: false"))
    assert set(link_users(one_way, "tokyo")) == {NAMES.link_user(x) for x in ("paris", "tokyo")}
    assert set(link_users(mesh_of(TRIANGLE), "tokyo")) == {
        NAMES.link_user(site) for site in ("paris", "tokyo", "sydney")
    }


def test_a_link_user_may_do_what_its_end_of_the_link_does_and_no_more() -> None:
    mesh = mesh_of(TRIANGLE)
    link = next(x for x in mesh.links if (x.sender, x.receiver) == ("paris", "tokyo"))
    other = next(x for x in mesh.links if (x.sender, x.receiver) == ("sydney", "tokyo"))
    user = link_users(mesh, "tokyo")[NAMES.link_user("paris")]
    assert may(user.write, NAMES.link_data(link))
    assert may(user.read, NAMES.link_acks(link))
    for pattern in (user.configure, user.write, user.read):
        assert may(pattern, NAMES.sender_queue(link))
        for name in (
            *("orders", "amq.default", "amq.topic", "", NAMES.log, NAMES.egress("orders")),
            *(NAMES.link_data(other), NAMES.sender_queue(other), NAMES.receiver_queue(link)),
        ):
            assert not may(pattern, name), (pattern, name)
    assert not may(user.read, NAMES.link_data(link))
    assert not may(user.write, NAMES.link_acks(link))
    assert not may(user.configure, NAMES.link_data(link))


def test_behind_nat_a_branch_has_both_ways_at_the_hub() -> None:
    mesh = mesh_of(
        """\
        mesh: acme
        topology: custom
        links: [{from: hub, to: shop, both: true, dial: from}]
        sites: {hub: {}, shop: {}}
        """
    )
    out, back = mesh.links
    user = link_users(mesh, "hub")[NAMES.link_user("shop")]
    assert link_users(mesh, "shop") == {}
    assert may(user.read, NAMES.link_data(out))
    assert may(user.write, NAMES.link_acks(out))
    assert may(user.write, NAMES.link_data(back))
    assert may(user.read, NAMES.link_acks(back))
    assert may(user.configure, NAMES.receiver_queue(out))
    assert may(user.configure, NAMES.sender_queue(back))


def test_at_a_third_sites_broker_both_ends_are_guests() -> None:
    mesh = mesh_of(TRIANGLE + "links: [{from: paris, to: tokyo, dial: sydney}]\n")
    link = next(x for x in mesh.links if (x.sender, x.receiver) == ("paris", "tokyo"))
    users = link_users(mesh, "sydney")
    assert may(users[NAMES.link_user("paris")].write, NAMES.link_data(link))
    assert may(users[NAMES.link_user("tokyo")].read, NAMES.link_data(link))
    assert not may(users[NAMES.link_user("tokyo")].write, NAMES.link_data(link))


def test_the_deliverer_may_write_to_what_is_delivered_here_now_or_was_before() -> None:
    mesh = with_exchange("{name: o, mode: split, from: [paris], to: [tokyo]}")

    def deliverer(site: str, *before: str) -> UserDeclaration:
        users = site_users(mesh, site, make_credentials(mesh), before)
        return next(user for user in users if user.name == NAMES.relay_user(site))

    for name in ("o.in", NAMES.dead_letters, NAMES.quarantine):
        assert may(deliverer("tokyo").write, name)
    for name in ("o", "former", "amq.default", "other", NAMES.log, NAMES.egress("o")):
        assert not may(deliverer("tokyo").write, name)
    assert may(deliverer("tokyo", "former").write, "former")
    assert not may(deliverer("paris").write, "o")


def test_applications_have_the_run_of_what_is_not_ours() -> None:
    mesh = mesh_of(TRIANGLE)
    users = {user.name: user for user in declared(mesh, "paris").users}
    app = users[NAMES.application_user("paris")]
    for pattern in (app.configure, app.write, app.read):
        for name in ("orders", "amq.gen-xyz", "amq.default", "celery", "myisthmus.q", ""):
            assert may(pattern, name)
        assert not may(pattern, NAMES.egress("orders"))
    assert users[NAMES.admin_user("paris")].tags == ("administrator",)


def test_a_site_with_a_broker_of_its_own_gets_no_users() -> None:
    mesh = mesh_of(
        TRIANGLE.replace("paris: {}", "paris: {broker: 'amqp://r@h', password: 'env:P'}")
    )
    assert declared(mesh, "paris").users == ()


def test_who_comes_to_a_broker_of_ones_own_as_itself_has_the_rights_of_a_neighbour_there() -> None:
    text = TRIANGLE.replace(
        "paris: {}", "paris: {broker: 'amqp://r@h', password: 'env:P', link_password: 'env:L'}"
    ).replace("tokyo: {}", "tokyo: {link_password: 'env:T'}")
    mesh = mesh_of(text)
    found = guests(mesh, "paris")
    assert list(found) == ["tokyo"], "sydney has no password of its own, and paris is at home"
    private = link_users(mesh_of(TRIANGLE), "paris")[NAMES.link_user("tokyo")]
    assert replace(found["tokyo"], password=private.password) == private
    assert guests(mesh, "tokyo") == {}


def test_separate_users_at_a_broker_of_ones_own_have_the_rights_of_those_at_a_private_one() -> None:
    text = TRIANGLE.replace(
        "paris: {}",
        "paris: {broker: 'amqp://r@h', password: 'env:P', management: 'http://h', users: separate}",
    )
    credentials = make_credentials(mesh_of(TRIANGLE))
    private = {
        user.name: user for user in site_users(mesh_of(TRIANGLE), "paris", credentials, ["former"])
    }
    not_the_nodes = {NAMES.application_user("paris"), NAMES.admin_user("paris")}
    others = {NAMES.link_user("tokyo"), NAMES.link_user("sydney")}
    ends = private.pop(NAMES.link_user("paris"))
    wanted = {name: private[name] for name in set(private) - not_the_nodes - others}
    wanted[NAMES.ends_user("paris")] = replace(ends, name=NAMES.ends_user("paris"))
    made = declarations(mesh_of(text), "paris", credentials, ["former"]).users
    assert {user.name: user for user in made} == wanted


def test_passwords_stay_out_of_what_is_printed() -> None:
    mesh = mesh_of(TRIANGLE)
    credentials = make_credentials(mesh)
    users = site_users(mesh, "paris", credentials)
    assert credentials.of("paris").relay == users[0].password
    for text in (repr(users), repr(credentials), repr(declarations(mesh, "paris", credentials))):
        assert credentials.of("paris").relay not in text


def test_a_limit_of_the_log_is_in_its_policy_and_none_otherwise() -> None:
    text = "mesh: m\ntopology: complete\nsites: {a: {log: {max_bytes: 1GiB}}, b: {}}\n"
    mesh = mesh_of(text)
    kept = {site: declared(mesh, site).policies[0].definition for site in mesh.sites}
    assert kept["a"] == {**kept["b"], "max-length-bytes": 2**30}
    assert set(kept["b"]) == {"max-age"}
