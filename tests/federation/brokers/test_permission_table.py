"""docs/security.md's table of what each user may do: every cell is tried on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import aio_pika
import pytest

from federation.brokers.addresses import AddressBook
from isthmus.brokers.installation import RabbitMQInstallation
from relay.bulk_amqp import connect
from tests.conftest import Eventually
from tests.federation.brokers.permission_trials import CLOSE, trials
from tests.federation.brokers.trier import FILE, OTHER, Refused, Trier
from tests.federation.live_site import Site
from tests.federation.meshes import mesh_of
from tests.live_brokers import Vhost

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
HEADING = "## What each user may do"
OLDER = "to 4.2"
"""A cell: yes on releases up to 4.2; later ones want some right to that very queue for it."""
LOGINS: dict[str, Callable[[AddressBook], tuple[str, str]]] = {
    "neighbour": lambda book: _link_end(book, "tokyo"),
    "own ends": lambda book: _link_end(book, "paris"),
    "deliverer": lambda book: (book.deliverer("paris").user, book.deliverer("paris").password),
    "packer": lambda book: (book.packer("paris").user, book.packer("paris").password),
    "log": lambda book: (book.stream("paris").user, book.stream("paris").password),
    "keeper": lambda book: (book.keeper("paris").user, book.keeper("paris").password),
    "monitor": lambda book: _monitor(book),
    "app": lambda book: (book.application("paris").user, book.application("paris").password),
    "admin": lambda book: (book.administrator("paris").user, book.administrator("paris").password),
}
"""By column: user and password."""


def _link_end(book: AddressBook, site: str) -> tuple[str, str]:
    link = next(link for link in book.mesh.links if link.name == "tokyo-paris")
    address = book.link_end(link, site)
    return address.user, address.password


def _monitor(book: AddressBook) -> tuple[str, str]:
    address = book.monitoring("paris")
    assert address is not None
    return address.user, address.password


def table() -> tuple[list[str], dict[str, list[str]]]:
    """The columns' heads, and the cells by row."""
    section = PAGE.read_text().split(f"\n{HEADING}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    head, _, *body = rows
    return head[1:], {row[0]: row[1:] for row in body}


def test_the_table_has_all_users_and_all_trials_and_no_others() -> None:
    heads, rows = table()
    assert heads == list(LOGINS)
    assert list(rows) == [*trials(), CLOSE]
    assert {cell for row in rows.values() for cell in row} == {"yes", "", OLDER}


@pytest.fixture
async def site(vhost: Vhost, tmp_path: Path) -> Site:
    """Paris as `apply` leaves it, and what an application has made there."""
    mesh = mesh_of(FILE.replace("MESH", vhost.name.replace(".", "-")))
    site = Site(vhost, mesh, "paris", tmp_path / "state")
    await site.make_admin()
    report = await site.apply()
    assert report.ok, report.faults
    connection = await aio_pika.connect(vhost.amqp_uri)
    async with connection:
        channel = await connection.channel()
        await channel.declare_exchange(OTHER, durable=True)
        await channel.declare_queue(OTHER, durable=True)
    return site


@pytest.mark.parametrize("column", LOGINS)
async def test_each_user_may_do_what_its_column_says_and_nothing_else(
    site: Site, column: str, rabbitmq: RabbitMQInstallation
) -> None:
    heads, rows = table()
    meaning = {OLDER: "yes" if rabbitmq.release < (4, 3) else ""}
    trier = Trier(site, *LOGINS[column](site.book))
    found: dict[str, str] = {}
    for what, trial in trials().items():
        try:
            await trial(trier)
        except Refused:
            found[what] = ""
        else:
            found[what] = "yes"
    cells = {what: row[heads.index(column)] for what, row in rows.items() if what != CLOSE}
    wanted = {what: meaning.get(cell, cell) for what, cell in cells.items()}
    assert found == wanted


async def test_who_may_close_connections_of_others_is_told_right(
    site: Site, eventually: Eventually
) -> None:
    heads, rows = table()
    victim = await connect(site.vhost.amqp_uri, name="victim")
    names: list[str] = []

    async def is_listed() -> bool:
        found = await site.vhost.api("GET", "/vhosts/{vhost}/connections")
        names[:] = [one["name"] for one in found if one.get("user") == site.vhost.user]
        return bool(names)

    await eventually(is_listed, "the connection listed", deadline_s=30)
    # Whoever may, ends it: they come last.
    for column in sorted(LOGINS, key=lambda column: rows[CLOSE][heads.index(column)]):
        trier = Trier(site, *LOGINS[column](site.book))
        if rows[CLOSE][heads.index(column)]:
            await trier.close(names[0])
            assert "closed via management" in str(await victim.wait_closed()).lower()
        else:
            with pytest.raises(Refused):
                await trier.close(names[0])


@pytest.mark.parametrize("what", ["log in to another virtual host", "publish as another user"])
async def test_what_nobody_may_is_refused_for_want_of_rights_alone(site: Site, what: str) -> None:
    trier = Trier(site, *LOGINS["admin"](site.book))
    with pytest.raises(Refused):
        await trials()[what](trier)
    tags = "administrator,impersonator"
    await site.vhost.api("PUT", f"/users/{trier.user}", {"password": trier.password, "tags": tags})
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    await site.vhost.api("PUT", f"/permissions/%2F/{trier.user}", every)
    await trials()[what](trier)
