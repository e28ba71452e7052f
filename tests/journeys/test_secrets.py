"""No secret of a mesh stands anywhere but where the mesh file says that it is."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.brokers.credentials import SECRETS_FILE
from federation.signing_keys import private_key_pem, public_key_text
from isthmus.brokers.config import BrokerUser
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.up.supervisor import end_supervisor
from isthmus.up.supervisor_record import read_record
from tests.conftest import VhostFactory
from tests.waiting import until

MAY_HAVE_THEM = {SECRETS_FILE, "admin.token", ".erlang.cookie"}
"""Files of the state folder that are what these secrets are kept in, readable by their owner."""


@dataclass
class Searched:
    """A mesh that runs, what it has printed, and every secret in it."""

    folder: Path
    environment: dict[str, str]
    secrets: dict[str, bytes]
    """What it is called -> the secret itself."""
    printed: dict[str, bytes] = field(default_factory=dict)
    """By command: all that it has said."""

    @property
    def state(self) -> Path:
        return self.folder / "state"

    async def run(self, command: str, *words: str, stands: dict[str, str] | None = None) -> int:
        """A command on the mesh file; `stands` is put into the environment besides."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "isthmus", *command.split(), "mesh.yaml", *words),
            *(() if command == "validate" else ("--state", "state")),
            cwd=self.folder,
            env={**os.environ, **self.environment, **(stands or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        self.printed[f"isthmus {command} {' '.join(words)} ({len(self.printed)})"] = said
        assert process.returncode is not None
        return process.returncode

    def found_in(self, where: str, content: bytes) -> Iterator[str]:
        """The secrets that stand there, in any of the forms in which somebody may write one."""
        for name, secret in self.secrets.items():
            forms = {secret, base64.b64encode(secret), quote(secret, safe="").encode()}
            forms |= {secret.hex().encode(), repr(secret)[2:-1].encode()}
            if any(form in content for form in forms):
                yield f"{name} in {where}"


def learn_made(mesh: Searched) -> None:
    """The secrets that Isthmus made itself."""
    made = json.loads((mesh.state / SECRETS_FILE).read_text())
    for site, passwords in made["sites"].items():
        for kind, password in passwords.items():
            mesh.secrets[f"{kind} of {site}"] = password.encode()
    for token in mesh.state.glob("**/admin.token"):
        mesh.secrets[str(token)] = token.read_bytes().strip()


@pytest.fixture
async def mesh(
    tmp_path: Path, rabbitmq: RabbitMQInstallation, vhost_factory: VhostFactory
) -> AsyncIterator[Searched]:
    """Paris has a private broker, tokyo one of its own; both sign."""
    vhost = await vhost_factory("tokyo")
    await vhost.add_user(BrokerUser(vhost.user, vhost.password, ("administrator",)))
    keys = {site: Ed25519PrivateKey.generate() for site in ("paris", "tokyo")}
    (tmp_path / "paris.pem").write_bytes(private_key_pem(keys["paris"]))
    (tmp_path / "paris.link").write_text(secrets.token_urlsafe())
    environment = {
        "TOKYO_PASSWORD": vhost.password,
        "TOKYO_KEY": private_key_pem(keys["tokyo"]).decode(),
        "TOKYO_LINK": secrets.token_urlsafe(),
    }
    found = Searched(
        tmp_path,
        environment,
        {
            "tokyo's password": vhost.password.encode(),
            "tokyo's link password": environment["TOKYO_LINK"].encode(),
            "paris's link password": (tmp_path / "paris.link").read_bytes(),
        }
        | {f"{site}'s key": private_key_pem(key).splitlines()[1] for site, key in keys.items()}
        | {f"{site}'s raw key": key.private_bytes_raw() for site, key in keys.items()},
    )
    sites: dict[str, dict[str, Any]] = {
        "paris": {"private_key": "file:paris.pem", "link_password": "file:paris.link"},
        "tokyo": {
            "private_key": "env:TOKYO_KEY",
            "link_password": "env:TOKYO_LINK",
            "broker": f"amqp://{vhost.user}@{vhost.host}:{vhost.amqp_port}/{vhost.name}",
            "stream": f"rabbitmq-stream://{vhost.host}:{vhost.stream_port}",
            "management": vhost.management_url,
            "password": "env:TOKYO_PASSWORD",
        },
    }
    for site, key in keys.items():
        sites[site]["public_key"] = public_key_text(key.public_key())
    document = {
        "mesh": f"secret{secrets.token_hex(3)}",
        "batch_format": 2,
        "signing": "ed25519",
        "topology": "complete",
        "exchanges": [{"name": "orders"}],
        "sites": sites,
    }
    (tmp_path / "mesh.yaml").write_text(yaml.safe_dump(document))
    try:
        assert await found.run("apply", "--site", "tokyo") == 0, found.printed
        where = str(rabbitmq.chroot or rabbitmq.home)
        code = await found.run("up", "--detach", "--rabbitmq", where)
        assert code == 0, found.printed
        learn_made(found)
        yield found
    finally:
        await end_supervisor(tmp_path / "state")


def processes(root: int) -> Iterator[tuple[str, bytes]]:
    """What everybody on the machine may see of a process and of all that it has started."""
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        folder = Path(f"/proc/{pid}")
        try:
            yield f"the command line of {pid}", (folder / "cmdline").read_bytes()
            for thread in (folder / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


@pytest.mark.slow
async def test_no_secret_stands_in_what_is_printed_kept_or_told(mesh: Searched) -> None:
    # What works, ...
    assert await mesh.run("publish", "paris", "orders", "key", "to all") == 0, mesh.printed
    for command, *words in (
        *(("validate",), ("plan", "--changes"), ("apply",), ("apply", "--json")),
        *(("status",), ("status", "--json"), ("doctor",), ("doctor", "--json")),
        *(("dead-letters list", "--site", "paris"), ("quarantine list", "--site", "tokyo")),
        *(("pause", "--site", "paris"), ("resume", "--site", "paris"), ("accept-gap", "paris")),
    ):
        await mesh.run(command, *words)
    # ... and what does not: another password, no key, a file that is none, a state that is another.
    false = {"TOKYO_PASSWORD": "no such password as this", "TOKYO_KEY": "-----BEGIN nonsense"}
    mesh.secrets |= {f"a false {name}": value.encode() for name, value in false.items()}
    for command, *words in (
        *(("apply",), ("doctor",), ("publish", "tokyo", "orders", "key", "x")),
        ("relay", "--site", "tokyo"),
    ):
        assert await mesh.run(command, *words, stands=false) != 0, (command, mesh.printed)
    text = (mesh.folder / "mesh.yaml").read_text()
    key = mesh.secrets["paris's key"].decode()
    # Where a person takes one for the other.
    (mesh.folder / "mesh.yaml").write_text(text.replace("file:paris.pem", key))
    assert await mesh.run("validate") != 0
    (mesh.folder / "mesh.yaml").write_text(text)

    record = read_record(mesh.state)
    assert record is not None
    seen = list(processes(record.pid))
    assert len(seen) > 5, "the mesh's own processes are not seen"
    told = await answers_of_nodes(mesh)
    assert await mesh.run("down") == 0
    kept = {
        str(file): file.read_bytes()
        for file in mesh.state.rglob("*")
        if file.is_file() and file.name not in MAY_HAVE_THEM
    }
    assert any("ledger" in name for name in kept), "the ledger is not seen"
    assert any(name.endswith(".log") for name in kept), "no log is seen"
    everywhere = {**mesh.printed, **dict(seen), **told, **kept}
    leaks = [
        leak for where, content in everywhere.items() for leak in mesh.found_in(where, content)
    ]
    assert leaks == []
    for file in mesh.state.rglob("*"):
        if file.name in MAY_HAVE_THEM:
            assert file.stat().st_mode & 0o077 == 0, file


async def answers_of_nodes(mesh: Searched) -> dict[str, bytes]:
    """What every node tells whoever asks."""
    said = await until(lambda: _reports(mesh), "the nodes say where they answer", 30)
    found: dict[str, bytes] = {}
    async with aiohttp.ClientSession() as session:
        for url in said:
            for path in ("/status", "/metrics", "/health", "/no/such/path"):
                async with session.get(url + path) as answer:
                    found[f"{url}{path}"] = await answer.read()
    return found


def _reports(mesh: Searched) -> list[str]:
    nodes = [json.loads(file.read_text()) for file in mesh.state.glob("sites/*/node.json")]
    return [f"http://127.0.0.1:{one['admin_port']}" for one in nodes]


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    mesh = Searched(tmp_path, {}, {"it": "p%ss/wörd".encode()})
    for content in (
        "p%ss/wörd".encode(),
        b"a p%25ss%2Fw%C3%B6rd b",
        base64.b64encode("p%ss/wörd".encode()),
    ):
        assert list(mesh.found_in("there", b"..." + content + b"...")) == ["it in there"]
    assert list(mesh.found_in("there", b"nothing")) == []
