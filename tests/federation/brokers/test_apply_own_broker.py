"""Apply at a broker of one's own: `broker:` in the mesh file."""

from __future__ import annotations

from federation.brokers.addresses import AddressBook
from federation.brokers.apply_report import Outcome
from federation.brokers.credentials import load_or_make
from tests.federation.live_site import FILE, Site, outcomes
from tests.live_brokers import Vhost


class OwnBroker(Site):
    """The same site with `broker:` in the mesh file."""

    def __init__(self, like: Site, text: str, password: str | None = None) -> None:
        super().__init__(like.vhost, like.mesh, like.name, like.state)
        self._password = password or like.vhost.password
        self.becomes(text)

    @property
    def book(self) -> AddressBook:
        credentials = load_or_make(self.state, self.mesh)
        return AddressBook(self.mesh, credentials, {}, {"PW": self._password})


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
        ("policy", Outcome.UNCHECKED),
        ("binding", Outcome.UNCHECKED),
    ]
    assert first.unchecked[0].mend.startswith("rabbitmqctl set_policy")
    site.becomes(text.replace(', "cancel"', ""))
    second = await site.apply()
    assert [item.outcome for item in second.changes] == [Outcome.UNBOUND]
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
    assert [(fault.kind, fault.outcome) for fault in report.faults] == [("broker", Outcome.FAILED)]
    assert "wrong" not in str(report)
    assert report.unchecked[0].kind == "policy"
