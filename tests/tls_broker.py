"""A broker that speaks TLS on every listener and asks every client for a certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from isthmus.brokers.config import PLUGINS, BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from isthmus.brokers.ports import free_ports
from tests.certificates import HERE, Authority, Pair, replaced
from tests.live_brokers import START_WITHIN_S, api, discard, local_broker, own_vhost, rabbitmqctl

RELAY = BrokerUser("relay", "p:ss/w@rd", tags=("administrator",))
EXTERNAL = "rabbitmq_auth_mechanism_ssl"
_READ_FILES_ANEW = "ssl:clear_pem_cache()."
"""Erlang looks at its PEM files anew two minutes after it has read them: a test need not wait."""

_END_CONNECTIONS = "[exit(element(6, C), kill) || C <- rabbit_connection_tracking:list()]."
"""The process of each; `close_all_connections` passes by those of streams."""

_CONFIGURATION = """\
listeners.ssl.1 = 127.0.0.1:{amqps}
ssl_options.certfile = {folder}/server.pem
ssl_options.keyfile = {folder}/server-key.pem
ssl_options.cacertfile = {folder}/clients.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
stream.listeners.ssl.1 = 127.0.0.1:{stream}
stream.advertised_tls_host = 127.0.0.1
stream.advertised_tls_port = {stream}
management.ssl.ip = 127.0.0.1
management.ssl.port = {https}
management.ssl.certfile = {folder}/server.pem
management.ssl.keyfile = {folder}/server-key.pem
management.ssl.cacertfile = {folder}/clients.pem
management.ssl.verify = verify_peer
management.ssl.fail_if_no_peer_cert = true
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = AMQPLAIN
auth_mechanisms.3 = EXTERNAL
ssl_cert_login_from = common_name
"""


@dataclass(frozen=True, slots=True)
class TlsBroker:
    """Whoever vouches for the server is `authority`, and for clients `clients`, unless a test
    writes other files.
    """

    broker: LocalBroker
    authority: Authority
    clients: Authority
    amqps: int
    stream: int
    https: int

    @property
    def files(self) -> Path:
        """Where its PEM files are."""
        return self.broker.spec.folder / "tls"

    async def shows(self, pair: Pair) -> None:
        """To whom connects from now on."""
        pair.write(self.files, "server")
        await rabbitmqctl(self.broker, "eval", _READ_FILES_ANEW)

    async def trusts(self, *authorities: Authority) -> None:
        """From now on, these and no other."""
        self._write_trusted(*authorities)
        await rabbitmqctl(self.broker, "eval", _READ_FILES_ANEW)

    def _write_trusted(self, *authorities: Authority) -> None:
        replaced(self.files / "clients.pem", b"".join(one.certificate for one in authorities))

    async def site(
        self,
        label: str,
        *,
        host: str = HERE,
        users: tuple[BrokerUser, ...] = (RELAY,),
        **more: Any,
    ) -> dict[str, Any]:
        """The mesh file's keys of a site in a virtual host of its own here, with these users."""
        vhost = await own_vhost(self.broker, label)
        for user in users:
            await vhost.add_user(user)
        return {
            "broker": f"amqps://{RELAY.name}@{host}:{self.amqps}/{vhost.name}",
            "stream": f"rabbitmq-stream+tls://{host}:{self.stream}",
            "management": f"https://{host}:{self.https}",
            **more,
        }

    def in_clear(self, site: dict[str, Any]) -> str:
        """The address of such a site for an application that knows no TLS."""
        return self.broker.spec.amqp_uri(RELAY, site["broker"].rpartition("/")[2])

    async def version(self) -> tuple[int, ...]:
        """Of RabbitMQ."""
        told = await api(self.broker, "GET", "/overview")
        return tuple(int(part) for part in told["rabbitmq_version"].split(".")[:2])

    async def part_from_all(self) -> None:
        """End all connections by AMQP and streams; the broker goes on."""
        await rabbitmqctl(self.broker, "eval", _END_CONNECTIONS)


@contextmanager
def tls_broker(installation: RabbitMQInstallation, folder: Path) -> Iterator[TlsBroker]:
    """It runs within the block."""
    plain = local_broker(installation, folder, "tls")
    spec = replace(plain.spec, plugins=(*PLUGINS, EXTERNAL))
    amqps, stream, https = free_ports(3)
    authority, clients = Authority("of the server"), Authority("of the clients")
    made = TlsBroker(LocalBroker(spec, installation), authority, clients, amqps, stream, https)
    for part in (made.files, folder / "conf.d"):
        part.mkdir(parents=True)
    authority.issues().write(made.files, "server")
    made._write_trusted(clients)
    inside = installation.path_inside(folder) / made.files.name
    (folder / "conf.d" / "10-tls.conf").write_text(
        _CONFIGURATION.format(amqps=amqps, stream=stream, https=https, folder=inside)
    )
    try:
        asyncio.run(made.broker.start(deadline_s=START_WITHIN_S))
        yield made
    finally:
        discard(made.broker)
