"""Access to the page, over HTTP: who may look, and who may order."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from isthmus.page.access import CSRF_HEADER, TRIES, TRY_EVERY_S, WrongTokens
from isthmus.page.server import TOKEN_FILE, PageOptions, PageUnavailable
from tests.certificates import Authority
from tests.isthmus.page.page_world import csrf_of, log_in, page_world

PAUSE = {"order": "pause", "site": "paris"}


def test_wrong_tokens_of_an_address_use_up_its_tries() -> None:
    wrong = WrongTokens()
    for _ in range(TRIES):
        assert wrong.wait_s("a", 0.0) == 0
        wrong.failed("a", 0.0)
    assert wrong.wait_s("a", 0.0) == TRY_EVERY_S
    assert wrong.wait_s("b", 0.0) == 0
    assert wrong.wait_s("a", TRY_EVERY_S) == 0


async def test_on_loopback_states_are_open_and_orders_need_the_token(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        assert (await world.get("/api/mesh"))[0] == 200
        for path in (
            "/api/orders",
            "/api/audits",
            "/api/trace?id=x",
            "/api/aside/paris/quarantine",
        ):
            status, text = await world.get(path)
            assert status == 401
            assert f"{TOKEN_FILE}, on the page's machine" in text
        assert (await world.post("/api/orders", PAUSE))[0] == 401
        assert (world.state / TOKEN_FILE).stat().st_mode & 0o777 == 0o600


async def test_a_login_begins_a_session_that_a_logout_ends(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        assert (await log_in(world))[0] == 200
        assert (await world.get("/api/orders"))[0] == 200
        session = json.loads((await world.get("/api/session"))[1])
        assert (session["who"], session["may_order"]) == ("ann", True)
        headers = {CSRF_HEADER: session["csrf"]}
        assert (await world.post("/api/logout", {}, headers=headers))[0] == 200
        assert (await world.get("/api/orders"))[0] == 401


async def test_an_order_without_the_sessions_csrf_token_is_refused(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        before = await csrf_of(world)
        await log_in(world)
        for headers in ({}, {CSRF_HEADER: "x"}, {CSRF_HEADER: before}):
            status, text = await world.post("/api/orders", PAUSE, headers=headers)
            assert status == 403
            assert "reload the page" in text
        assert (await world.json("/api/orders"))["orders"] == []


async def test_wrong_tokens_are_answered_401_and_then_429(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        for _ in range(TRIES):
            status, text = await log_in(world, "not the token")
            assert status == 401
            assert text.startswith("the token is wrong")
        status, text = await log_in(world)
        assert status == 429
        assert "try again in" in text
        assert (await world.get("/api/orders", headers=world.bearer))[0] == 429


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_page_of_another_origin_gets_nothing(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with page_world(tmp_path) as world:
        assert (await world.get("/api/mesh", headers=headers))[0] == 403
        assert (await world.post("/api/login", {"token": "x"}, headers=headers))[0] == 403


async def test_a_proxy_with_the_token_vouches_for_its_user(tmp_path: Path) -> None:
    options = PageOptions(port=0, trust_header="X-User")
    async with page_world(tmp_path, options=options) as world:
        forged = await world.get("/api/orders", headers={"X-User": "eve"})
        assert forged[0] == 401
        proxied = {**world.bearer, "X-User": "bob", "Host": "mesh.example"}
        session = json.loads((await world.get("/api/session", headers=proxied))[1])
        assert (session["who"], session["may_order"]) == ("bob", True)
        assert (await world.post("/api/orders", PAUSE, headers=proxied))[0] == 403
        headers = {**proxied, CSRF_HEADER: session["csrf"]}
        status, text = await world.post("/api/orders", PAUSE, headers=headers)
        assert status == 200
        assert json.loads(text)["who"] == "bob at 127.0.0.1"
        status, text = await world.get("/api/mesh", headers=world.bearer)
        assert (status, "the proxy names nobody in X-User" in text) == (401, True)


async def test_a_name_in_any_bytes_is_a_name(tmp_path: Path) -> None:
    options = PageOptions(port=0, trust_header="X-User")
    async with page_world(tmp_path, options=options) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(world.url.split(":")[2]))
        head = f"GET /api/session HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {world.token}\r\n"
        writer.write(head.encode() + b"X-User: \xff\xfe\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_elsewhere_the_page_wants_tls(tmp_path: Path) -> None:
    with pytest.raises(PageUnavailable, match="wants TLS: say --certificate and --key"):
        async with page_world(tmp_path, options=PageOptions("0.0.0.0", 0)):
            pass


async def test_elsewhere_nothing_but_the_login_is_open(tmp_path: Path) -> None:
    authority = Authority("us")
    certificate, key = authority.issues().write(tmp_path, "page")
    options = PageOptions("0.0.0.0", 0, str(certificate), str(key))
    async with page_world(tmp_path, options=options) as world:
        world.url = world.url.replace("0.0.0.0", "127.0.0.1")
        trust = ssl.create_default_context(cadata=authority.certificate.decode())
        assert (await world.get("/", ssl=trust))[0] == 200
        for path in ("/api/mesh", "/api/events", "/api/drawing", "/api/history?site=paris"):
            assert (await world.get(path, ssl=trust))[0] == 401
        session = json.loads((await world.get("/api/session", ssl=trust))[1])
        assert "mesh" not in session
        headers = {CSRF_HEADER: session["csrf"]}
        fields = {"token": world.token, "name": "ann"}
        async with world.http.post(
            f"{world.url}/api/login", json=fields, headers=headers, ssl=trust
        ) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert {"HttpOnly", "Secure", "SameSite=Strict"} <= {p.strip() for p in cookie.split(";")}
        assert (await world.get("/api/mesh", ssl=trust))[0] == 200


async def test_a_short_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    with pytest.raises(PageUnavailable, match="fewer than 16 characters"):
        async with page_world(tmp_path, options=PageOptions(token=f"file:{tmp_path}/token")):
            pass


async def test_a_token_that_was_changed_counts_at_once(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        former = world.bearer
        (world.state / TOKEN_FILE).write_text("another token of some length")
        assert (await world.get("/api/orders", headers=former))[0] == 401
        assert (await world.get("/api/orders", headers=world.bearer))[0] == 200


async def test_every_answer_bears_the_policy_of_content(tmp_path: Path) -> None:
    async with page_world(tmp_path) as world:
        for path in ("/", "/static/main.js", "/api/mesh", "/api/orders", "/nothing"):
            async with aiohttp.ClientSession() as http, http.get(f"{world.url}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'self';")
                assert "unsafe" not in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
