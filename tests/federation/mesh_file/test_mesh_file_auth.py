"""`auth: external` of a site: what it comes to, and what it needs."""

from __future__ import annotations

import pytest

from federation.brokers.addresses import AddressBook
from federation.brokers.credentials import Credentials, PasswordMissing
from federation.mesh import BrokerAuth
from federation.mesh_json import mesh_as_json, mesh_from_json
from tests.federation.meshes import errors_of, mesh_of

TLS = "tls: {ca: /dev/null, certificate: /dev/null, key: /dev/null}"
BROKER = 'broker: "amqps://relay@b.example/v"'
EXTERNAL = f"{BROKER}, auth: external, {TLS}"


def file_with(keys: str) -> str:
    return f"""
        mesh: acme
        topology: complete
        exchanges: [{{name: orders}}]
        sites: {{paris: {{}}, tokyo: {{{keys}}}}}
        """


def test_a_login_by_certificate_needs_no_password() -> None:
    mesh = mesh_of(file_with(EXTERNAL))
    broker = mesh.sites["tokyo"].broker
    assert broker is not None
    assert broker.auth is BrokerAuth.EXTERNAL
    book = AddressBook(mesh, Credentials({}), {}, {})
    address = book.deliverer("tokyo")
    assert (address.user, address.password, address.is_external) == ("relay", "", True)
    assert address.uri == "amqps://relay@b.example:5671/v?auth_mechanism=external"
    assert book.stream("tokyo").is_external
    assert mesh_from_json(mesh_as_json(mesh)).sites["tokyo"].broker == broker


def test_a_site_that_comes_as_itself_comes_with_its_own_password() -> None:
    text = file_with(EXTERNAL).replace("paris: {}", "paris: {link_password: 'env:L'}")
    mesh = mesh_of(text)
    link = next(one for one in mesh.links if one.meeting == "tokyo")
    book = AddressBook(mesh, Credentials({}), {}, {"L": "secret"})
    there = book.link_end(link, "paris")
    assert (there.user, there.password) == ("isthmus.acme.link.paris", "secret")
    assert (there.is_external, there.files.certificate) == (False, "/dev/null")
    assert book.link_end(link, "tokyo").is_external


def test_the_management_api_has_its_password_all_the_same() -> None:
    keys = f'{EXTERNAL}, management: "https://b.example", password: "env:P"'
    mesh = mesh_of(file_with(keys))
    management = AddressBook(mesh, Credentials({}), {}, {"P": "secret"}).management("tokyo")
    assert management is not None
    assert (management.user, management.password) == ("relay", "secret")
    with pytest.raises(PasswordMissing):
        AddressBook(mesh, Credentials({}), {}, {}).management("tokyo")


def test_a_password_is_the_default_and_leaves_the_revision_as_it_was() -> None:
    plain = f'{BROKER}, password: "env:P"'
    assert (
        mesh_of(file_with(plain)).revision
        == mesh_of(file_with(f"{plain}, auth: password")).revision
    )
    assert (
        mesh_of(file_with(f"{BROKER}, auth: external, {TLS}")).revision
        != mesh_of(file_with(f'{BROKER}, password: "env:P", {TLS}')).revision
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("auth: external", "`auth` without a `broker` it belongs to"),
        (f"{BROKER}, auth: certificate", "write one of password, external"),
        (f"{BROKER}, auth: external", "`auth: external` without a certificate to log in with"),
        (f"{BROKER}, auth: external, tls: {{ca: /dev/null}}", "without a certificate"),
        (
            EXTERNAL.replace("amqps", "amqp"),
            "`auth: external` for an address that begins with amqp",
        ),
        (f'{EXTERNAL}, stream: "rabbitmq-stream://b"', "`auth: external` with a `stream` that is"),
        (f'{EXTERNAL}, management: "https://b"', "`management` without a password"),
    ],
)
def test_what_a_login_by_certificate_needs_is_said(keys: str, said: str) -> None:
    assert [one for one in errors_of(file_with(keys)) if said in str(one)], errors_of(
        file_with(keys)
    )


def test_a_password_beside_it_is_what_the_log_goes_by() -> None:
    mesh = mesh_of(file_with(f'{EXTERNAL}, password: "env:P"'))
    book = AddressBook(mesh, Credentials({}), {}, {"P": "secret"})
    assert (book.stream("tokyo").password, book.stream("tokyo").is_external) == ("secret", False)
    assert book.deliverer("tokyo").is_external
