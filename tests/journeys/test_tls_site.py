"""A site whose broker speaks TLS only: log, egress, delivery, links and `apply` go through it."""

from __future__ import annotations

import pytest

from isthmus.local_brokers import BrokerUser, RabbitMQInstallation, free_ports
from tests.certificates import make_certificates
from tests.conftest import LocalBrokerFactory
from tests.journeys.conftest import MeshFactory

RELAY = BrokerUser("relay", "p:ss/w@rd", tags=("administrator",))


async def test_a_broker_that_speaks_tls(
    live_mesh: MeshFactory,
    rabbitmq: RabbitMQInstallation,
    local_broker_factory: LocalBrokerFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await local_broker_factory("tls", users=(RELAY,), start=False)
    folder = broker.spec.folder
    (folder / "conf.d").mkdir(parents=True)
    own, authority = make_certificates(rabbitmq, folder)
    amqps, stream, https = free_ports(3)
    inside = rabbitmq.path_inside(folder) / own.name
    (folder / "conf.d" / "10-tls.conf").write_text(
        f"listeners.ssl.1 = 127.0.0.1:{amqps}\n"
        f"ssl_options.certfile = {inside}\nssl_options.keyfile = {inside}\n"
        f"stream.listeners.ssl.1 = 127.0.0.1:{stream}\n"
        f"stream.advertised_tls_host = 127.0.0.1\nstream.advertised_tls_port = {stream}\n"
        f"management.ssl.ip = 127.0.0.1\nmanagement.ssl.port = {https}\n"
        f"management.ssl.certfile = {inside}\nmanagement.ssl.keyfile = {inside}\n"
    )
    await broker.start()
    # What a company with an authority of its own sets for the node and for `apply`.
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    monkeypatch.setenv("TOKYO_PASSWORD", RELAY.password)
    mesh = await live_mesh(
        "paris",
        topology="complete",
        sites={
            "paris": {},
            "tokyo": {
                "broker": f"amqps://relay@127.0.0.1:{amqps}/",
                "stream": f"rabbitmq-stream+tls://127.0.0.1:{stream}",
                "management": f"https://127.0.0.1:{https}",
                "password": "env:TOKYO_PASSWORD",
            },
        },
    )
    await mesh.listen()
    mesh.start()
    await mesh.running()
    await mesh.publish_everywhere(300)
    await mesh.arrived()
    mesh.check(most_flags=0)
