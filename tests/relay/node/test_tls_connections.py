"""Every kind of connection to a broker that speaks TLS: what refuses it, what mends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isthmus.brokers.config import BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation
from tests.certificates import DAY, Authority
from tests.tls_broker import RELAY, TlsBroker, tls_broker
from tests.tls_page import is_said
from tests.tls_site import KINDS, TlsSite, tls_site

STRANGER = Authority("stranger")
OTHER = BrokerUser("other", "other-password")
UNKNOWN = (
    "it does not know who issued ours, or does not any more: revoked by removal from its CA file"
)
Act = Callable[[TlsBroker, TlsSite], Awaitable[None]]


@pytest.fixture(scope="module")
def broker(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    with tls_broker(rabbitmq, tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture
async def site(broker: TlsBroker, tmp_path: Path) -> TlsSite:
    made = await tls_site(broker, tmp_path)
    assert await made.connection_errors() == dict.fromkeys(KINDS, "")
    return made


async def of_another_host(broker: TlsBroker, site: TlsSite) -> None:
    await broker.shows(broker.authority.issues("127.0.0.9"))


async def expired(broker: TlsBroker, site: TlsSite) -> None:
    await broker.shows(broker.authority.issues(begins=-2 * DAY, ends=-DAY))


async def not_yet_valid(broker: TlsBroker, site: TlsSite) -> None:
    await broker.shows(broker.authority.issues(begins=DAY, ends=2 * DAY))


async def of_an_unknown_authority(broker: TlsBroker, site: TlsSite) -> None:
    await broker.shows(STRANGER.issues())


async def not_trusted_any_more(broker: TlsBroker, site: TlsSite) -> None:
    site.trusts(STRANGER)


async def nobody_trusted_any_more(broker: TlsBroker, site: TlsSite) -> None:
    site.trusts()


async def ours_of_an_unknown_authority(broker: TlsBroker, site: TlsSite) -> None:
    site.shows(STRANGER.issues(name=RELAY.name))


async def ours_expired(broker: TlsBroker, site: TlsSite) -> None:
    site.shows(broker.clients.issues(name=RELAY.name, begins=-2 * DAY, ends=-DAY))


async def ours_revoked(broker: TlsBroker, site: TlsSite) -> None:
    await broker.trusts(STRANGER)


OF_OURS = (ours_of_an_unknown_authority, ours_expired, ours_revoked)


def was_broken_off(said: str) -> bool:
    """What a client sees of the broker's refusal if the end of the connection overtakes it."""
    return is_said("it hangs up, and its reason does not come through", said)


async def mend(broker: TlsBroker, site: TlsSite) -> None:
    await broker.shows(broker.authority.issues())
    site.trusts(broker.authority)
    site.shows(broker.clients.issues(name=RELAY.name))


async def mend_trust(broker: TlsBroker, site: TlsSite) -> None:
    await broker.trusts(broker.clients)


@pytest.mark.parametrize(
    ("act", "undo", "case", "file"),
    [
        (of_another_host, mend, "its certificate is for another host", ""),
        (expired, mend, "its certificate has expired", ""),
        (not_yet_valid, mend, "its certificate is not valid yet", ""),
        (of_an_unknown_authority, mend, "nobody whom we trust vouches for it", "ca.pem"),
        (
            not_trusted_any_more,
            mend,
            "its authority was taken out of our `ca` file",
            "ca.pem",
        ),
        (nobody_trusted_any_more, mend, "our `ca` file has no certificate at all", "ca.pem"),
        (ours_of_an_unknown_authority, mend, UNKNOWN, "relay.pem"),
        (ours_expired, mend, "ours has expired", "relay.pem"),
        (ours_revoked, mend_trust, UNKNOWN, "relay.pem"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_refused_certificate_is_told_and_a_mended_one_taken_up(
    broker: TlsBroker, site: TlsSite, act: Act, undo: Act, case: str, file: str
) -> None:
    await act(broker, site)
    try:
        for kind, said in (await site.connection_errors()).items():
            if not (act in OF_OURS and was_broken_off(said)):
                assert is_said(case, said), f"{kind}: {said}"
                assert file in said, f"{kind}: {said}"
    finally:
        await undo(broker, site)
    assert await site.connection_errors() == dict.fromkeys(KINDS, "")


def without(site: TlsSite, *keys: str, password: bool = False) -> TlsSite:
    """With a mesh file that does not have these keys of `tls`, or no `password`."""
    mesh = site.book.mesh
    sites = {}
    for name, one in mesh.sites.items():
        assert one.broker is not None
        files = replace(one.broker.tls, **dict.fromkeys(keys, ""))
        changed = replace(one.broker, tls=files)
        if password:
            changed = replace(changed, password="")
        sites[name] = replace(one, broker=changed)
    return replace(site, book=replace(site.book, mesh=replace(mesh, sites=sites)))


async def test_without_a_file_of_authorities_the_systems_own_are_trusted(
    site: TlsSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(site.folder / "ca.pem"))
    system = without(site, "ca")
    assert await system.connection_errors() == dict.fromkeys(KINDS, "")
    site.trusts(STRANGER)
    for kind, said in (await system.connection_errors()).items():
        assert "nobody in the system's authorities vouches" in said, f"{kind}: {said}"


async def test_a_certificate_is_the_login_where_the_mesh_file_says_so(
    broker: TlsBroker, tmp_path: Path
) -> None:
    site = await tls_site(broker, tmp_path, auth="external")
    assert await site.connection_errors() == dict.fromkeys(KINDS, "")
    forgotten = replace(site, book=replace(site.book, environ={"P": "not the password"}))
    said = await forgotten.connection_errors()
    assert "401" in said.pop("management")
    assert "AuthenticationFailure" in said.pop("log")
    assert said == dict.fromkeys(said, "")


async def test_without_a_password_the_log_goes_by_the_certificate_where_the_broker_can(
    broker: TlsBroker, tmp_path: Path
) -> None:
    site = without(await tls_site(broker, tmp_path, auth="external"), password=True)
    said = await site.connection_errors()
    if await broker.version() < (3, 12):
        reason = said.pop("log")
        assert is_said("its streams know none", reason), reason
    assert "no password" in said.pop("management")
    assert said == dict.fromkeys(said, "")


async def test_a_certificate_of_a_user_without_rights_is_refused(
    broker: TlsBroker, tmp_path: Path
) -> None:
    site = await tls_site(broker, tmp_path, auth="external")
    site.shows(broker.clients.issues(name="nobody"))
    said = await site.connection_errors()
    assert (said.pop("management"), said.pop("log")) == ("", "")  # which go by the password
    for kind, reason in said.items():
        assert "refused" in reason.lower() or "AuthenticationFailure" in reason, f"{kind}: {reason}"


class Listener:
    """Notes why a link's connection ended."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_frames(self, frames: object) -> None:
        raise AssertionError("nobody sends any")

    def on_returned(self, head: bytes) -> None:
        return None

    def on_closed(self, reason: str) -> None:
        self.closed.set_result(reason)


async def test_a_link_is_not_vouched_for_under_another_name_than_the_mesh_files(
    broker: TlsBroker, tmp_path: Path
) -> None:
    site = await tls_site(broker, tmp_path, auth="external", users=(RELAY, OTHER))
    site.shows(broker.clients.issues(name=OTHER.name))
    end, listener = await site.link_end(), Listener()
    end.listen(listener)
    end.send(b"whatever")
    reason = await asyncio.wait_for(listener.closed, 10)
    assert "user_id property set to 'relay' but authenticated user was 'other'" in reason


async def test_a_broker_that_wants_a_certificate_and_gets_none(site: TlsSite) -> None:
    bare = without(site, "certificate", "key")
    for kind, said in (await bare.connection_errors()).items():
        wants = is_said("it wants a certificate, and we show none", said)
        assert wants or was_broken_off(said), f"{kind}: {said}"
        assert "wants a certificate" in said, f"{kind}: {said}"


async def test_a_renewal_that_is_half_there_does_not_prevent_connections(
    broker: TlsBroker, site: TlsSite
) -> None:
    renewed = broker.clients.issues(name=RELAY.name)
    (site.folder / "relay.pem").write_bytes(renewed.certificate)
    (site.folder / "ca.pem").unlink()
    assert await site.connection_errors() == dict.fromkeys(KINDS, "")
    (site.folder / "relay-key.pem").write_bytes(renewed.key)
    site.trusts(STRANGER, broker.authority)
    assert await site.connection_errors() == dict.fromkeys(KINDS, "")
