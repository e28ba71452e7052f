"""Private brokers: they start, keep what they have, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import aio_pika
import pytest

from isthmus import processes
from isthmus.brokers.config import BrokerUser
from isthmus.brokers.errors import BrokerStartError
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.local_brokers import LocalBroker
from tests.live_brokers import ADMIN, Vhost, api, discard, local_broker

ROOT = Path(__file__).parents[3]
APP = BrokerUser("app", "p/w:@", write="app\\..*")


def all_processes(broker: LocalBroker) -> list[processes.ProcessMark]:
    """The broker's node, epmd and helpers, as they are now."""
    assert broker.pid is not None
    recorded = json.loads((broker.spec.folder / "processes.json").read_text())
    marks = [processes.ProcessMark(*each) for each in recorded]
    assert broker.pid in [each.pid for each in marks]
    return [*marks, *processes.descendants(broker.pid)]


@pytest.mark.long
async def test_a_broker_keeps_what_it_has_and_takes_up_a_changed_spec_at_its_next_start(
    local_broker_factory,
):
    broker = await local_broker_factory("keeps", vhosts=("/", "v 1"), users=(APP,))
    async with await aio_pika.connect(broker.spec.amqp_uri(ADMIN, "v 1")) as connection:
        channel = await connection.channel()
        await channel.declare_queue("kept", durable=True)
        message = aio_pika.Message(b"here", delivery_mode=2)
        await channel.default_exchange.publish(message, "kept")

    left = all_processes(broker)
    await broker.stop()
    assert not broker.is_running
    assert broker.pid is None
    assert [each for each in left if each.is_alive] == []

    newcomer = BrokerUser("newcomer", "secret", read="mine")
    broker.spec = replace(
        broker.spec,
        vhosts=("/", "v 1", "added"),
        users=(ADMIN, replace(APP, password="changed"), newcomer),
    )
    await broker.start()
    async with await aio_pika.connect(broker.spec.amqp_uri(ADMIN, "v 1")) as connection:
        queue = await (await connection.channel()).declare_queue("kept", passive=True)
        got = await queue.get()
        assert got.body == b"here"
        await got.ack()
    for user in broker.spec.users[1:]:
        async with await aio_pika.connect(broker.spec.amqp_uri(user, "added")):
            pass
    permissions = await api(broker, "GET", "/permissions/added/newcomer")
    assert (permissions["read"], permissions["write"]) == ("mine", ".*")
    assert no_password_is_readable(broker)


def no_password_is_readable(broker: LocalBroker) -> bool:
    files = [file for file in broker.spec.folder.rglob("*") if file.is_file()]
    readable = [file for file in files if APP.password.encode() in file.read_bytes()]
    private = [broker.spec.folder / name for name in ("definitions.json", ".erlang.cookie")]
    return (
        not readable
        and stat.S_IMODE(broker.spec.folder.stat().st_mode) == 0o700
        and all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in private)
    )


@pytest.mark.long
async def test_a_broker_that_hangs_or_dies_can_be_had_back(local_broker_factory):
    broker = await local_broker_factory("fails")
    broker.suspend()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await api(broker, "GET", "/overview")
    assert broker.is_running
    broker.resume()
    assert (await api(broker, "GET", "/overview"))["node"] == broker.spec.node_name

    left = all_processes(broker)
    waiting = asyncio.create_task(broker.wait_ended())
    os.kill(broker.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        assert await waiting == -signal.SIGKILL
    assert broker.pid is None

    await broker.start()
    assert [each for each in left if each.is_alive] == []
    left = all_processes(broker)
    broker.suspend()
    # No node ends in good order so soon: this one goes by force.
    await broker.stop(patience_s=0.05)
    assert not broker.is_running
    assert [each for each in left if each.is_alive] == []


async def test_a_broker_that_is_stopped_while_it_starts_has_not_started(
    local_broker_factory, eventually
):
    broker = await local_broker_factory("unwanted", start=False)
    starting = asyncio.create_task(broker.start())
    await eventually(lambda: broker.is_running, "the node's process is there")
    left = all_processes(broker)
    await broker.stop(patience_s=2)
    assert [each for each in left if each.is_alive] == []
    with pytest.raises(BrokerStartError, match="stopped while it was starting"):
        await starting


async def test_a_broker_that_cannot_start_shows_the_end_of_its_log(local_broker_factory):
    broker = await local_broker_factory("late", start=False)
    with (
        socket.create_server(("127.0.0.1", broker.spec.dist_port)),
        pytest.raises(BrokerStartError) as caught,
    ):
        await broker.start()
    assert caught.value.name == "late"
    assert f"could not bind to distribution port {broker.spec.dist_port}" in str(caught.value)
    assert not broker.is_running


async def test_a_broker_that_is_not_ready_in_time_is_ended(local_broker_factory):
    broker = await local_broker_factory("slow", start=False)
    with pytest.raises(BrokerStartError, match="not ready in time"):
        await broker.start(deadline_s=0.5)
    assert not broker.is_running
    assert not (broker.spec.folder / "processes.json").exists()


async def test_a_start_that_is_cancelled_leaves_no_process(local_broker_factory, eventually):
    broker = await local_broker_factory("cancelled", start=False)
    starting = asyncio.create_task(broker.start())
    await eventually(lambda: broker.is_running, "the node's process is there")
    left = all_processes(broker)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await eventually(lambda: not any(each.is_alive for each in left), "all processes gone")


OWNER = """
import asyncio, sys
from pathlib import Path
from isthmus.brokers.config import BrokerSpec
from isthmus.brokers.installation import find_installation
from isthmus.brokers.local_brokers import LocalBroker
from tests.waiting import until

async def main():
    ports = [int(port) for port in sys.argv[3:8]]
    spec = BrokerSpec("owned", Path(sys.argv[1]), *ports)
    installation = find_installation(Path(sys.argv[2]) if sys.argv[2] else None)
    broker = LocalBroker(spec, installation, die_with_parent=sys.argv[8] == "die")
    starting = asyncio.create_task(broker.start())
    await until(lambda: broker.pid is not None, "the node's process is there", 60)
    print(broker.pid, flush=True)
    await starting
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Owner:
    """Another process that starts `broker`, to be killed."""

    def __init__(self, broker: LocalBroker, fate: str) -> None:
        spec = broker.spec
        ports = (spec.amqp_port, spec.stream_port, spec.management_port, spec.dist_port)
        where = broker.installation.chroot or broker.installation.home
        words = [str(spec.folder), str(where), *map(str, ports), str(spec.epmd_port), fate]
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    async def broker_pid(self) -> int:
        assert self.process.stdout is not None
        return int(await asyncio.to_thread(self.process.stdout.readline))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


async def test_a_broker_dies_with_the_process_that_started_it(
    rabbitmq: RabbitMQInstallation, tmp_path: Path, eventually
):
    owner = Owner(local_broker(rabbitmq, tmp_path / "b", "owned"), "die")
    try:
        node = processes.mark(await owner.broker_pid())
        assert node is not None
        left = [node, *processes.descendants(owner.process.pid)]
    finally:
        owner.kill()
    await eventually(lambda: not any(each.is_alive for each in left), "all processes gone")


@pytest.mark.slow
async def test_a_broker_that_outlived_its_owner_is_replaced_by_the_next(
    rabbitmq: RabbitMQInstallation, tmp_path: Path
):
    broker = local_broker(rabbitmq, tmp_path / "b", "owned")
    owner = Owner(broker, "outlive")
    try:
        old = processes.mark(await owner.broker_pid())
        assert old is not None
    finally:
        owner.kill()
    assert old.is_alive
    try:
        await broker.start()
        assert not old.is_alive
        assert broker.pid != old.pid
    finally:
        discard(broker)


async def test_two_virtual_hosts_do_not_see_each_other(vhost: Vhost, vhost_factory):
    other = await vhost_factory("other")
    async with await aio_pika.connect(vhost.amqp_uri) as connection:
        await (await connection.channel()).declare_queue("here")
        queues = await vhost.api("GET", "/queues/{vhost}?disable_stats=true")
        assert [queue["name"] for queue in queues] == ["here"]
        assert await other.api("GET", "/queues/{vhost}?disable_stats=true") == []


async def test_its_administrator_can_have_the_command_that_reaches_it(vhost: Vhost) -> None:
    control = vhost.broker.spec.control
    command = await asyncio.create_subprocess_shell(
        f"{control} list_permissions -p {vhost.name}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await command.communicate()
    assert command.returncode == 0, said.decode()
    assert vhost.user in said.decode()
