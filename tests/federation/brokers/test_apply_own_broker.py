"""Apply at a broker of one's own: `broker:` in the mesh file."""

from __future__ import annotations

import shlex

import pytest
from aio_pika.exceptions import AMQPException

from federation.brokers.addresses import AddressBook
from federation.brokers.apply_report import ItemOutcome
from federation.brokers.credentials import load_or_make
from federation.brokers.management import ManagementApi
from isthmus.brokers.config import BrokerUser
from isthmus.doctor.broker import examine_declared
from isthmus.doctor.finding import Findings, Grade
from relay.node.brokers import RabbitBrokers
from tests.federation.live_site import FILE, Site, outcomes, publish
from tests.live_brokers import Vhost, rabbitmqctl


class OwnBroker(Site):
    """The same site with `broker:` in the mesh file."""

    def __init__(self, like: Site, text: str, password: str | None = None, **environ: str) -> None:
        super().__init__(like.vhost, like.mesh, like.name, like.state)
        self._password = like.vhost.password if password is None else password
        self._environ = environ
        self.becomes(text)

    @property
    def book(self) -> AddressBook:
        credentials = load_or_make(self.state, self.mesh)
        return AddressBook(self.mesh, credentials, {}, {"PW": self._password, **self._environ})


def without_password(vhost: Vhost) -> str:
    return f"amqp://{vhost.user}@{vhost.host}:{vhost.amqp_port}/{vhost.name}"


async def test_without_a_management_api_former_bindings_are_known_from_the_last_apply(
    paris: Site,
) -> None:
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW'}}",
    )
    site = OwnBroker(paris, text)
    first = await site.apply()
    assert first.ok, first.faults
    assert [(i.kind, i.outcome) for i in first.unchecked] == [
        ("policy", ItemOutcome.UNCHECKED),
        ("binding", ItemOutcome.UNCHECKED),
    ]
    assert first.unchecked[0].mend.startswith("rabbitmqctl set_policy")
    site.becomes(text.replace(', "cancel"', ""))
    second = await site.apply()
    assert [item.outcome for item in second.changes] == [ItemOutcome.UNBOUND]
    assert await paris.keys_bound(paris.names.egress("orders")) == {("orders", "order.#")}


async def test_at_a_broker_of_ones_own_users_are_left_to_its_administrator(paris: Site) -> None:
    management = paris.vhost.management_url
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW', "
        f"management: '{management}'}}",
    )
    site = OwnBroker(paris, text)
    report = await site.apply()
    assert report.ok, report.faults
    assert outcomes(report, "user") == {}
    assert site.book.deliverer("paris").user == paris.vhost.user


async def test_a_wrong_password_is_told_and_nothing_is_raised(paris: Site) -> None:
    text = FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW', "
        f"management: '{paris.vhost.management_url}'}}",
    )
    site = OwnBroker(paris, text, password="wrong")
    report = await site.apply()
    assert [(fault.kind, fault.outcome) for fault in report.faults] == [
        ("broker", ItemOutcome.FAILED)
    ]
    assert "wrong" not in str(report)
    assert report.unchecked[0].kind == "policy"


def with_guest(paris: Site, management: bool = True) -> str:
    """Tokyo comes to paris's broker with a password of its own."""
    more = f", management: '{paris.vhost.management_url}'" if management else ""
    return FILE.replace(
        "paris: {}",
        f"paris: {{broker: '{without_password(paris.vhost)}', password: 'env:PW'{more}}}",
    ).replace("tokyo: {}", "tokyo: {link_password: 'env:TOKYO'}")


async def make_administrator(vhost: Vhost) -> None:
    await vhost.add_user(BrokerUser(vhost.user, vhost.password, ("administrator",)))


async def test_the_users_of_other_sites_links_are_made_there_and_no_others(paris: Site) -> None:
    await make_administrator(paris.vhost)
    site = OwnBroker(paris, with_guest(paris), TOKYO="from tokyo")
    report = await site.apply()
    assert report.ok, report.faults
    tokyo = site.names.link_user("tokyo")
    assert outcomes(report, "user") == {tokyo: ItemOutcome.CREATED}
    assert outcomes(report, "rights") == {tokyo: ItemOutcome.CREATED}
    assert "from tokyo" not in str(report)
    link = next(one for one in site.mesh.links_to("paris") if one.sender == "tokyo")
    address = site.book.link_end(link, "tokyo")
    assert (address.user, address.password) == (tokyo, "from tokyo")
    await publish(address, site.names.link_data(link), "")
    for exchange in ("orders", ""):
        with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
            await publish(address, exchange, site.names.egress("orders"))
    assert (await site.apply()).changes == ()


async def test_a_neighbour_that_comes_there_no_more_is_told_also_if_it_was_the_last(
    paris: Site,
) -> None:
    await make_administrator(paris.vhost)
    text = with_guest(paris)
    site = OwnBroker(paris, text, TOKYO="from tokyo")
    await site.apply()
    gone = OwnBroker(paris, text.replace("{link_password: 'env:TOKYO'}", "{}"))
    report = await gone.apply()
    assert outcomes(report, "rights") == {site.names.link_user("tokyo"): ItemOutcome.LEFT}


async def test_each_purpose_of_the_node_has_a_user_there_if_the_file_says_separate(
    paris: Site,
) -> None:
    await make_administrator(paris.vhost)
    stream = f"stream: 'rabbitmq-stream://{paris.vhost.host}:{paris.vhost.stream_port}'"
    text = with_guest(paris).replace("management:", f"{stream}, users: separate, management:")
    site = OwnBroker(paris, text, TOKYO="from tokyo")
    report = await site.apply()
    assert report.ok, report.faults
    names = site.names
    made = [
        one("paris")
        for one in (
            *(names.relay_user, names.packer_user, names.log_user, names.keeper_user),
            *(names.monitor_user, names.ends_user),
        )
    ]
    assert set(outcomes(report, "user")) == {*made, names.link_user("tokyo")}
    brokers, book = RabbitBrokers(), OwnBroker(paris, text, password="not known here").book
    for opened in (
        await brokers.open_egress(book, "paris"),
        await brokers.open_exchange(book, "paris"),
        await brokers.open_log(book, "paris"),
        await brokers.connect(book, "paris", "test"),
    ):
        await opened.close()
    for exchange in ("orders", names.dead_letters):
        await publish(book.deliverer("paris"), exchange, "")
        with pytest.raises(AMQPException, match="ACCESS_REFUSED"):
            await publish(book.packer("paris"), exchange, "")
    assert (await site.apply()).changes == ()


async def test_doctor_looks_there_as_the_monitor_and_says_that_it_cannot_see_users_rights(
    paris: Site,
) -> None:
    await make_administrator(paris.vhost)
    text = with_guest(paris).replace("management:", "users: separate, management:")
    site = OwnBroker(paris, text, TOKYO="from tokyo")
    assert (await site.apply()).ok
    for password, grade in ((None, Grade.OK), ("", Grade.UNKNOWN)):
        book = OwnBroker(paris, text, password=password).book
        found, monitoring = Findings("paris"), book.monitoring("paris")
        assert monitoring is not None
        async with ManagementApi(monitoring) as api:
            await examine_declared(api, book, "paris", found)
        assert [(one.subject, one.grade) for one in found.all] == [("declared", grade)]


async def test_what_apply_cannot_do_about_such_a_user_it_prints_and_that_works(
    paris: Site,
) -> None:
    reasons = {
        "no management": OwnBroker(paris, with_guest(paris, management=False)),
        "no administrator": OwnBroker(paris, with_guest(paris), TOKYO="from tokyo"),
        "no password here": OwnBroker(paris, with_guest(paris)),
    }
    tokyo = paris.names.link_user("tokyo")
    for why, site in reasons.items():
        if why == "no password here":
            await make_administrator(paris.vhost)
        report = await site.apply()
        assert report.ok, (why, report.faults)
        [told] = [item for item in report.unchecked if item.name == tokyo]
        assert told.mend.startswith(f"rabbitmqctl add_user {tokyo} "), why
    said = shlex.split(told.mend)
    assert said[:3] == ["rabbitmqctl", "add_user", tokyo]
    rights = said[said.index("set_permissions") :]
    broker = paris.vhost.broker
    await rabbitmqctl(broker, "add_user", tokyo, given="from tokyo\n")
    await rabbitmqctl(broker, *rights)
    site = OwnBroker(paris, with_guest(paris), TOKYO="from tokyo")
    assert (await site.apply()).changes == ()
    # Where the password is not known, its rights are looked at all the same.
    await paris.vhost.api("DELETE", f"/permissions/{{vhost}}/{tokyo}")
    report = await reasons["no password here"].apply()
    assert [(item.kind, item.name) for item in report.changes] == [("rights", tokyo)]
