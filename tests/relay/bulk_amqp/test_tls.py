"""The same connection over TLS."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from pamqp import commands

from relay.bulk_amqp import ConnectionFailed, ConnectionLost, Publisher, connect
from tests.certificates import Authority
from tests.relay.bulk_amqp.fake_broker import Client, fake_broker
from tests.tls_page import is_said

PLAIN = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def certificates(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for 127.0.0.1, and a client's that trusts it."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority("a")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issues().write(folder, "server"))
    return server, ssl.create_default_context(cadata=authority.certificate.decode())


async def test_messages_go_through_tls_with_back_pressure(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certificates

    async def script(peer: Client) -> None:
        await peer.log_in(frame_max=131072)
        await peer.open_channel()
        await peer.expect(commands.Confirm.Select)
        peer.send(1, commands.Confirm.SelectOk())
        await peer.take_publishes(64)
        peer.send(1, commands.Basic.Ack(64, True))
        await peer.expect(commands.Connection.Close)
        peer.send(0, commands.Connection.CloseOk())

    async with fake_broker(script, server) as uri:
        connection = await connect(uri, ssl_context=client)
        publisher = Publisher(await connection.channel())
        await publisher.start()
        publication = publisher.publish_many([("e", b"k", PLAIN, bytes(1 << 19))] * 64)
        await asyncio.wait_for(publisher.drain(), 20)
        assert (await asyncio.wait_for(publisher.wait(publication), 20)).all_routed
        assert connection.bytes_taken == connection.bytes_sent > 32 << 20
        await connection.close()
        assert connection.close_reason is not None
        assert connection.close_reason.code == 200


async def test_a_certificate_that_nobody_vouches_for_is_refused(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, _ = certificates
    async with fake_broker(lambda peer: peer.log_in(), server) as uri:
        with pytest.raises(ConnectionFailed, match="certificate"):
            await connect(uri, timeout=5)


async def test_a_certificate_for_another_host_is_refused(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certificates
    async with fake_broker(lambda peer: peer.log_in(), server) as uri:
        with pytest.raises(ConnectionFailed, match="certificate"):
            # The same place under a name that needs no resolver: a bare system knows no localhost.
            await connect(uri.replace("127.0.0.1", "127.1"), ssl_context=client, timeout=5)


async def test_a_broker_without_logins_by_certificate_says_what_it_lacks(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certificates
    async with fake_broker(lambda peer: peer.log_in(), server) as uri:
        with pytest.raises(ConnectionFailed, match="auth_mechanism_ssl") as failed:
            await connect(f"{uri}?auth_mechanism=external", ssl_context=client, timeout=5)
    assert is_said("the broker knows no logins by certificate", str(failed.value))


async def test_a_peer_that_breaks_off_tls_is_a_lost_connection(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = certificates

    async def script(peer: Client) -> None:
        await peer.log_in()
        peer.writer.transport.abort()

    async with fake_broker(script, server) as uri:
        connection = await connect(uri, ssl_context=client)
        assert isinstance(await asyncio.wait_for(connection.wait_closed(), 5), ConnectionLost)


async def test_a_broker_without_tls_is_a_failed_connection(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    _, client = certificates

    async def script(peer: Client) -> None:
        await peer.reader.read(8)
        peer.writer.write(b"AMQP\x00\x00\x09\x01")
        await peer.reader.read()

    async with fake_broker(script) as uri:
        with pytest.raises(ConnectionFailed) as failed:
            await connect(uri.replace("amqp:", "amqps:"), ssl_context=client, timeout=5)
    assert is_said("it speaks no TLS at that port", str(failed.value))
