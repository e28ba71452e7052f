"""A site whose broker speaks TLS only: log, egress, delivery, links and `apply` go through it."""

from __future__ import annotations

import pytest

from isthmus.local_brokers import BrokerUser, RabbitMQInstallation, free_ports
from tests.certificates import make_certificates
from tests.conftest import LocalBrokerFactory
from tests.journeys.conftest import MeshFactory

_ASKS_FOR_CERTIFICATES = """\
ssl_options.cacertfile = {0}/client-roots.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
management.ssl.cacertfile = {0}/client-roots.pem
management.ssl.verify = verify_peer
management.ssl.fail_if_no_peer_cert = true
"""
RELAY = BrokerUser("relay", "p:ss/w@rd", tags=("administrator",))


@pytest.mark.parametrize(
    "trust",
    ["files of the mesh file", pytest.param("SSL_CERT_FILE", marks=pytest.mark.long)],
)
async def test_a_broker_that_speaks_tls(
    live_mesh: MeshFactory,
    rabbitmq: RabbitMQInstallation,
    local_broker_factory: LocalBrokerFactory,
    monkeypatch: pytest.MonkeyPatch,
    trust: str,
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
        + (_ASKS_FOR_CERTIFICATES.format(inside.parent) if trust != "SSL_CERT_FILE" else "")
    )
    await broker.start()
    tls: dict[str, object] = {}
    if trust == "SSL_CERT_FILE":
        # What a company with an authority of its own sets for the node and for `apply`.
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    else:
        files = {"ca": authority, "certificate": folder / "client.pem"}
        tls["tls"] = {k: str(v) for k, v in files.items()} | {"key": str(folder / "client-key.pem")}
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
                **tls,
            },
        },
    )
    await mesh.listen()
    mesh.start()
    await mesh.running()
    await mesh.publish_everywhere(300)
    await mesh.arrived()
    mesh.check(most_flags=0)
