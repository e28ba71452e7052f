"""The admin port for other machines: TLS, a token, and what is renewed of both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from federation.mesh import AdminAccess, TlsFiles
from isthmus.brokers.ports import free_ports
from isthmus.status import NoReport, node_report
from relay.admin.access import AdminAfar, AdminUnavailable
from relay.admin.admin import Admin, AdminServer
from tests.certificates import DAY, Authority, replaced

REPORT: dict[str, Any] = {"pid": 1, "sites": {}, "links": []}
TOKEN = "0123456789abcdef0123"
OURS = Authority("ours")


@pytest.fixture
def afar(tmp_path: Path) -> AdminAfar:
    certificate, key = OURS.issues().write(tmp_path, "node")
    replaced(tmp_path / "ca.pem", OURS.certificate)
    replaced(tmp_path / "token", f"{TOKEN}\n".encode())
    token = f"file:{tmp_path / 'token'}"
    (port,) = free_ports(1)
    return AdminAfar("127.0.0.1", port, str(certificate), str(key), token, {})


@pytest.fixture
async def admin(afar: AdminAfar) -> AsyncIterator[Admin]:
    made = Admin(lambda: REPORT, afar=afar)
    await made.start()
    yield made
    await made.close()


async def report_from_afar(afar: AdminAfar, **changed: str) -> dict[str, Any]:
    """As `isthmus status` of another machine does."""
    files = TlsFiles(ca=changed.get("ca", str(Path(afar.certificate).parent / "ca.pem")))
    access = AdminAccess(changed.get("token", afar.token), files)
    url = f"{changed.get('scheme', 'https')}://127.0.0.1:{afar.port}"
    async with aiohttp.ClientSession() as session:
        return await node_report(session, url, access, {"WRONG": "not the token, not at all"})


async def test_who_has_the_token_and_trusts_the_certificate_is_told(
    admin: Admin, afar: AdminAfar
) -> None:
    assert await report_from_afar(afar) == REPORT


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"token": ""}, "does not take the token"),
        ({"token": "env:WRONG"}, "does not take the token in env:WRONG"),
        ({"token": "env:UNSET"}, "UNSET: it is not set"),
        ({"ca": ""}, "nobody in the system's authorities vouches"),
        ({"scheme": "http"}, "."),
    ],
)
async def test_nobody_else_is(
    admin: Admin, afar: AdminAfar, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(NoReport, match=said):
        await report_from_afar(afar, **changed)


async def test_every_path_wants_the_token_and_none_changes_anything(
    admin: Admin, afar: AdminAfar
) -> None:
    connector = aiohttp.TCPConnector(ssl=False)  # this is not about the certificate
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{afar.port}", connector=connector
    ) as client:
        for path in ("/health", "/status", "/metrics", "/nothing"):
            answer = await client.get(path, headers={"Host": "127.0.0.1"})
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), path
        token = {"Authorization": f"Bearer {TOKEN}"}
        assert (await client.get("/metrics", headers=token)).status == 200
        for path in ("/sites/paris/dead-letters/drop", "/sites/paris/repair"):
            assert (await client.post(path, headers=token, data="{}")).status == 404


async def test_a_token_that_is_no_text_is_none(admin: Admin, afar: AdminAfar) -> None:
    trusting = ssl.create_default_context(cadata=OURS.certificate.decode())
    reader, writer = await asyncio.open_connection(afar.host, afar.port, ssl=trusting)
    writer.write(b"GET /status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\r\n\r\n")
    assert (await asyncio.wait_for(reader.readline(), 10)).split()[1] == b"401"
    writer.close()


async def test_what_is_renewed_is_taken_up(admin: Admin, afar: AdminAfar) -> None:
    folder = Path(afar.certificate).parent
    successor = Authority("its successor")
    renewed = successor.issues()
    replaced(Path(afar.certificate), renewed.certificate)  # the key is still the former one
    assert await report_from_afar(afar) == REPORT
    replaced(Path(afar.key), renewed.key)
    with pytest.raises(NoReport, match=r"nobody in .*ca\.pem"):
        await report_from_afar(afar)
    replaced(folder / "ca.pem", successor.certificate)
    assert await report_from_afar(afar) == REPORT
    former = replaced(folder / "former", TOKEN.encode())
    replaced(folder / "token", b"another one, as long as that")
    assert await report_from_afar(afar) == REPORT
    with pytest.raises(NoReport, match="does not take the token"):
        await report_from_afar(afar, token=f"file:{former}")
    (folder / "token").rename(folder / "away")
    with pytest.raises(NoReport):
        await report_from_afar(afar, token=f"file:{folder / 'away'}")


async def test_a_handshake_that_never_comes_is_not_waited_for(afar: AdminAfar) -> None:
    server = AdminServer(web.Application(), first_request_within_s=0.2)
    port = await server.start("127.0.0.1", 0, afar.checked())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await server.close()


async def test_a_certificate_that_has_expired_is_told(admin: Admin, afar: AdminAfar) -> None:
    OURS.issues(begins=-2 * DAY, ends=-DAY).write(Path(afar.certificate).parent, "node")
    with pytest.raises(NoReport, match="its certificate has expired"):
        await report_from_afar(afar)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": "/nowhere.pem"}, "no certificate and its key"),
        ({"token": "env:UNSET"}, "UNSET"),
        ({"token": "env:SHORT"}, "fewer than 16 characters"),
    ],
)
async def test_it_does_not_begin_without_what_it_takes(
    afar: AdminAfar, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(AdminUnavailable, match=said):
        await Admin(
            lambda: REPORT, afar=replace(afar, environ={"SHORT": "secret"}, **changed)
        ).start()


async def test_programs_of_its_own_machine_ask_on_loopback_as_ever(afar: AdminAfar) -> None:
    made = Admin(lambda: REPORT, afar=afar)
    port = await made.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        assert json.loads(await (await client.get("/status")).text()) == REPORT
    await made.close()
