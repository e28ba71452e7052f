"""A mesh whose sites are at a broker that speaks TLS, and every kind of connection to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from federation.brokers.addresses import AddressBook
from federation.brokers.amqp_declare import declaring
from federation.brokers.apply import apply_site
from federation.brokers.credentials import load_or_make
from federation.brokers.management import ManagementApi
from federation.mesh_file import load_mesh
from federation.names import Names
from relay.links.transport.link_end import LinkEnd
from relay.links.transport.rabbit import LinkEndAddress
from relay.node.brokers import RabbitBrokers
from tests.certificates import Authority, Pair, replaced
from tests.tls_broker import RELAY, TlsBroker

KINDS = ("log", "egress", "delivery", "link", "management", "declaring")


@dataclass(frozen=True, slots=True)
class TlsSite:
    """The site `paris` of a mesh of two, and the files that it names, which may be replaced."""

    folder: Path
    book: AddressBook

    def trusts(self, *authorities: Authority) -> None:
        """Its `ca` from now on."""
        replaced(self.folder / "ca.pem", b"".join(one.certificate for one in authorities))

    def shows(self, pair: Pair) -> None:
        """Its `certificate` and `key` from now on."""
        pair.write(self.folder, "relay")

    async def connects(self, kind: str) -> None:
        """Connect, and close. Raises what the node or the command gets."""
        await self._kinds[kind]()

    async def connection_errors(self) -> dict[str, str]:
        """Error of a connection by its kind; "" where the site connects."""

        async def error_of(kind: str) -> str:
            try:
                async with asyncio.timeout(20):
                    await self.connects(kind)
            except Exception as error:  # whatever it is, the test looks at it
                return f"{type(error).__name__}: {error}"
            return ""

        return dict(zip(KINDS, await asyncio.gather(*map(error_of, KINDS)), strict=True))

    @property
    def _kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "log": self._log,
            "egress": self._egress,
            "delivery": self._delivery,
            "link": self._link,
            "management": self._management,
            "declaring": self._declaring,
        }

    async def _log(self) -> None:
        await (await RabbitBrokers().open_log(self.book, "paris")).close()

    async def _egress(self) -> None:
        await (await RabbitBrokers().open_egress(self.book, "paris")).close()

    async def _delivery(self) -> None:
        await (await RabbitBrokers().open_exchange(self.book, "paris")).close()

    async def _link(self) -> None:
        await (await self.link_end()).close()

    async def link_end(self) -> LinkEnd:
        """The sender's, of the link to the other site."""
        (link,) = self.book.mesh.links_from("paris")
        names = Names(self.book.mesh.name)
        amqp = self.book.link_end(link, "paris")
        return await (
            RabbitBrokers()
            .link(
                LinkEndAddress(
                    uri=amqp.uri,
                    user=amqp.user,
                    sends_to=names.link_data(link),
                    hears_from=names.link_acks(link),
                    queue=names.sender_queue(link),
                    is_receiver=False,
                    queue_bytes=1 << 20,
                    name="test",
                    ssl_context=amqp.ssl_context,
                )
            )
            .connect()
        )

    async def _management(self) -> None:
        address = self.book.management("paris")
        assert address is not None
        async with ManagementApi(address) as api:
            await api.get("whoami")

    async def _declaring(self) -> None:
        async with declaring(self.book.administrator("paris")):
            pass


async def tls_site(broker: TlsBroker, folder: Path, **more: Any) -> TlsSite:
    """All is declared, and it can connect. `more` are keys of both sites."""
    files = TlsSite(folder, None)  # type: ignore[arg-type]
    files.trusts(broker.authority)
    files.shows(broker.clients.issues(name=RELAY.name))
    document = {
        "mesh": f"t{secrets.token_hex(3)}",
        "topology": "complete",
        "exchanges": [{"name": "orders"}],
        "sites": {
            name: await broker.site(name, password="env:P", tls=tls_keys(folder), **more)
            for name in ("paris", "tokyo")
        },
    }
    file = folder / "mesh.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    mesh = load_mesh(file)
    state = folder / "state"
    site = TlsSite(folder, AddressBook(mesh, load_or_make(state, mesh), {}, {"P": RELAY.password}))
    for name in mesh.sites:
        report = await apply_site(site.book, name, state)
        assert not report.faults, report.faults
    return site


def tls_keys(folder: Path) -> dict[str, str]:
    """`tls:` of a site whose files are there."""
    return {
        "ca": str(folder / "ca.pem"),
        "certificate": str(folder / "relay.pem"),
        "key": str(folder / "relay-key.pem"),
    }
