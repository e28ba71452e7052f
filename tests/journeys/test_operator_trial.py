"""Ten faults at six sites under load, found and mended as an operator would: each shows on the page
and by its alert, and what the alert's section of the runbook says to do mends the fault.

Prints the times (s) until the page and the alert showed each fault, and until both showed the end.
With ISTHMUS_TRIAL_HASTE=1 alerts wait as long as in operation, and the trial lasts half an hour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from federation.brokers import provision
from federation.names import Names
from isthmus.brokers.installation import RabbitMQInstallation
from isthmus.brokers.ports import free_ports
from isthmus.demo import LOSSY_NODES, Loss
from isthmus.page.gatherer import MeshOfFile
from isthmus.page.server import TOKEN_FILE, PageOptions, PageServer
from isthmus.repair import RepairWork
from tests.certificates import DAY, replaced
from tests.isthmus.page.browser import chromium, tab
from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.journeys.operator_desk import MENDED_WITHIN_S, SHOWN_WITHIN_S, Desk, Fault, in_haste
from tests.journeys.prometheus_server import answer_of, prometheus, served
from tests.journeys.supervised_mesh import isthmus
from tests.journeys.test_gaps import eats
from tests.journeys.test_repair import publish_alone
from tests.journeys.test_stuck_flow import NEVER_GIVES_UP, limit, no_limit
from tests.journeys.traffic import TrafficSink, TrafficSource
from tests.live_brokers import rabbitmqctl
from tests.tls_broker import RELAY, TlsBroker, tls_broker
from tests.tls_site import tls_keys
from tests.waiting import until
from wan_proxy import LAN, LineCondition

pytestmark = [pytest.mark.long, pytest.mark.spark]

PLAIN = ("paris", "tokyo", "sydney", "lima", "oslo")
TLS_SITE = "cairo"
PER_SECOND, MOST = 5.0, 1_000_000
LONG = 400 * DAY


@pytest.fixture(scope="module")
def tls(
    rabbitmq: RabbitMQInstallation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    with tls_broker(rabbitmq, tmp_path_factory.mktemp("tls")) as made:
        yield made


@pytest.fixture
async def mesh(
    tls: TlsBroker, live_mesh: MeshFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LiveMesh:
    """Six sites with a broker each, that run and listen; cairo's speaks TLS."""
    monkeypatch.setattr(provision, "LOG_SEGMENT_BYTES", 64 * 1024)
    monkeypatch.setenv("P", RELAY.password)
    replaced(tmp_path / "ca.pem", tls.authority.certificate)
    tls.clients.issues(ends=LONG).write(tmp_path, "relay")
    cairo = await tls.site(TLS_SITE, tls=tls_keys(tmp_path), auth="external", password="env:P")
    ports = free_ports(len(PLAIN) + 1)
    sites: dict[str, dict[str, Any]] = {name: {} for name in PLAIN} | {TLS_SITE: cairo}
    for site, port in zip(sites.values(), ports, strict=True):
        site["admin"] = f"http://127.0.0.1:{port}"
    mesh = await live_mesh(
        *PLAIN,
        own=PLAIN,
        wan={("paris", "lima"): LAN, ("paris", "oslo"): LAN},
        topology="complete",
        sites=sites,
        exchanges=[{"name": "orders"}, {"name": "parcels", "retry": NEVER_GIVES_UP}],
    )
    mesh.program = LOSSY_NODES
    await mesh.listen(PLAIN)
    in_clear = tls.in_clear(cairo)
    mesh.sources[TLS_SITE] = TrafficSource(in_clear, TLS_SITE, "orders")
    mesh.sinks[TLS_SITE] = TrafficSink(in_clear, TLS_SITE, "orders")
    await mesh.sinks[TLS_SITE].start()
    mesh.start_each()
    await mesh.running()
    return mesh


async def test_ten_faults_are_seen_and_mended(
    mesh: LiveMesh, tls: TlsBroker, tmp_path: Path
) -> None:
    textfile = tmp_path / "isthmus.prom"
    textfile.touch()
    admin = [site["admin"].removeprefix("http://") for site in mesh.document["sites"].values()]
    async with AsyncExitStack() as parts:
        jobs = {"isthmus": admin, "node": [await parts.enter_async_context(served(textfile))]}
        url = await parts.enter_async_context(prometheus(tmp_path, jobs, in_haste(tmp_path)))
        source = MeshOfFile(mesh.file, mesh.state, mesh.mesh)
        options = PageOptions(port=0, prometheus=url)
        page = (await PageServer(source, options).start(parts)).rstrip("/")
        browser = await parts.enter_async_context(chromium())
        shown = await parts.enter_async_context(tab(browser, page))
        alerts = await parts.enter_async_context(aiohttp.ClientSession(url))
        await shown.open("mesh")
        await shown.log_in((mesh.state / TOKEN_FILE).read_text().strip())
        desk = Desk(mesh, shown, alerts)
        await until(
            lambda: answer_of(alerts, "alerts"), "Prometheus answers", SHOWN_WITHIN_S, every_s=0.5
        )
        await mesh.publish_everywhere(20)
        await mesh.arrived()
        await desk.goes_through(lost_message(desk, textfile))
        async with load(mesh):
            for fault in (
                node_killed(desk),
                broker_stopped(desk),
                line_cut(desk),
                line_slow(desk),
                queue_full(desk),
                clock_off(desk),
                certificate_expired(desk, tls, tmp_path),
                password_wrong(desk),
            ):
                await desk.goes_through(fault)
        await mesh.arrived(within_s=300)
        for sink in mesh.sinks.values():
            sink.arrived = [one for one in sink.arrived if one.origin]  # but for the repaired one
        mesh.check()
        await desk.goes_through(gap(desk))
    print("\n".join(("", *desk.lines)))
    assert len(desk.lines) == 10


@asynccontextmanager
async def load(mesh: LiveMesh) -> AsyncIterator[None]:
    """Publish at every site as long as the block lasts."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as publishing:
        for site in mesh.mesh.sites:
            publishing.create_task(
                mesh.source(site).publish(
                    MOST,
                    per_second=PER_SECOND,
                    chunk=int(PER_SECOND),
                    again_after_failure=True,
                    going=lambda: not over.is_set(),
                )
            )
        yield
        over.set()


def lost_message(desk: Desk, textfile: Path) -> Fault:
    """A message that the node of tokyo passes over; the audit finds, and the page repairs it."""
    mesh, begin = desk.mesh, time.time()

    async def audit(expected: int) -> None:
        period = [
            datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
            for at in (begin - 60, time.time())
        ]
        assert await RepairWork(mesh.mesh, mesh.state, []).write_ledgers() == {}
        words = ("--from", period[0], "--to", period[1], "--textfile", str(textfile))
        code, said = await isthmus(mesh, "audit", *words)
        assert code == expected, said

    async def plant() -> None:
        await publish_alone(mesh.uri("paris"), "lost", Loss.BEFORE.at("tokyo"))
        await settled(mesh, PLAIN)
        await audit(1)

    async def mend() -> None:
        await desk.confirm("Repair")
        await audit(0)

    return Fault(
        "message lost",
        "IsthmusAuditFindings",
        {},
        "audits",
        "Repair",
        plant,
        "isthmus repair FILE",
        mend,
    )


async def settled(mesh: LiveMesh, sites: tuple[str, ...]) -> None:
    """Wait until nothing waits in egress or log of these sites."""
    await mesh.until_told(
        lambda told: all(
            told["sites"][site]["undelivered_messages"] == 0
            and told["sites"][site]["egress_messages"] == 0
            for site in sites
        ),
        "all is settled",
    )


def node_killed(desk: Desk) -> Fault:
    mesh = desk.mesh

    async def killed() -> None:
        mesh.kill("tokyo")

    async def started() -> None:
        mesh.start(["tokyo"])

    return Fault(
        "node killed",
        "IsthmusNodeUnreachable",
        {"instance": mesh.document["sites"]["tokyo"]["admin"].removeprefix("http://")},
        "site/tokyo",
        "the node does not answer",
        killed,
        "start the node",
        started,
    )


def broker_stopped(desk: Desk) -> Fault:
    broker, sink = desk.mesh.vhosts["sydney"].broker, desk.mesh.sinks["sydney"]

    async def stopped() -> None:
        # Else the broker hands out again what the sink has not acknowledged yet.
        await sink.close()
        await broker.stop()

    async def started() -> None:
        await broker.start(deadline_s=MENDED_WITHIN_S)
        sink.resume()

    return Fault(
        "broker stopped",
        "IsthmusSiteDown",
        {"site": "sydney"},
        "site/sydney",
        "down",
        stopped,
        "mend the broker",
        started,
    )


def line_cut(desk: Desk) -> Fault:
    line = desk.mesh.lines["paris", "lima"]

    async def cut() -> None:
        line.cut()

    async def healed() -> None:
        line.heal()

    return Fault(
        "line cut silently",
        "IsthmusLinkNotConnected",
        {"from": "paris", "to": "lima"},
        "link/paris-lima",
        "down",
        cut,
        "mend line",
        healed,
    )


def line_slow(desk: Desk) -> Fault:
    line = desk.mesh.lines["paris", "oslo"]

    async def slow() -> None:
        line.set(LineCondition.both_ways(rate_bits_per_s=64_000))
        # Into an exchange whose messages nobody counts.
        await TrafficSource(desk.mesh.uri("paris"), "heavy", "parcels").publish(100, size=20_000)

    async def quick() -> None:
        line.set(LAN)

    return Fault(
        "line at 64 kbit a second",
        "IsthmusLinkLagging",
        {"from": "paris", "to": "oslo"},
        "link/paris-oslo",
        "lagging",
        slow,
        "find out why the line is slow",
        quick,
    )


def queue_full(desk: Desk) -> Fault:
    mesh = desk.mesh
    full = TrafficSink(mesh.uri("lima"), "lima", "parcels", queue="full")

    async def fill() -> None:
        await full.declare()
        await limit(mesh.vhosts["lima"], full.queue)
        await TrafficSource(mesh.uri("paris"), "paris", "parcels").publish(50)

    async def lift() -> None:
        await no_limit(mesh.vhosts["lima"], full.queue)

    return Fault(
        "queue full",
        "IsthmusDeliveryStands",
        {"site": "lima"},
        "site/lima",
        "reject-publish",
        fill,
        "the queue that refuses",
        lift,
    )


def clock_off(desk: Desk) -> Fault:
    mesh = desk.mesh

    async def ahead() -> None:
        assert mesh.stop("oslo") == 0
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        mesh.environment = {
            "LD_PRELOAD": str(library),
            "FAKETIME": "+40",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        mesh.start(["oslo"])
        mesh.environment = {}

    async def right() -> None:
        assert mesh.stop("oslo") == 0
        mesh.start(["oslo"])

    return Fault(
        "clock off",
        "IsthmusClocksApart",
        {"from": "paris", "to": "oslo"},
        "link/paris-oslo",
        "40 s ahead",
        ahead,
        "set the clock that is wrong",
        right,
    )


def certificate_expired(desk: Desk, tls: TlsBroker, folder: Path) -> Fault:
    sink = desk.mesh.sinks[TLS_SITE]

    async def expired() -> None:
        await sink.close()
        tls.clients.issues(begins=-2 * DAY, ends=-DAY).write(folder, "relay")
        await tls.part_from_all()

    async def renewed() -> None:
        tls.clients.issues(ends=LONG).write(folder, "relay")
        sink.resume()

    return Fault(
        "certificate expired",
        "IsthmusCertificateExpires",
        {"site": TLS_SITE, "severity": "critical"},
        f"site/{TLS_SITE}",
        "relay.pem has expired",
        expired,
        "renew the file in place",
        renewed,
    )


def password_wrong(desk: Desk) -> Fault:
    mesh, lima = desk.mesh, desk.mesh.vhosts["lima"]
    names = Names(mesh.mesh.name)
    kept = {names.admin_user("lima"), names.application_user("lima")}

    async def changed() -> None:
        users = {one["name"] for one in await lima.api("GET", "/users")}
        for user in users - kept:
            if user.startswith(names.prefix):
                await rabbitmqctl(lima.broker, "change_password", user, "another")
        await mesh.sinks["lima"].close()
        # Connections outlive their password: these have to be made anew.
        await rabbitmqctl(lima.broker, "close_all_connections", "-p", lima.name, "maintenance")

    async def applied() -> None:
        _, said = await isthmus(mesh, "doctor")
        assert "refuses user" in said, said
        await mesh.apply()  # in this process, which knows of the logs' small segments
        mesh.sinks["lima"].resume()

    return Fault(
        "wrong password",
        "IsthmusSiteDown",
        {"site": "lima"},
        "site/lima",
        "AuthenticationFailure",
        changed,
        "isthmus apply FILE",
        applied,
    )


def gap(desk: Desk) -> Fault:
    """A log that its broker cut short while a link was held back; the page accepts the gap."""
    mesh = desk.mesh

    async def cut_short() -> None:
        await desk.command("pause", "--link", "paris-tokyo")
        await mesh.source("paris").publish(4000, size=1024)
        await settled(mesh, ("paris",))
        await eats(mesh, "paris")
        assert mesh.stop("paris") == 0  # its memory has the last megabytes
        mesh.start(["paris"])
        await desk.command("resume", "--link", "paris-tokyo")

    async def accepted() -> None:
        await desk.shown.open("site/paris")
        await desk.confirm("Accept the gap")

    return Fault(
        "gap",
        "IsthmusGap",
        {"site": "paris"},
        "site/paris",
        "Accept the gap",
        cut_short,
        "accept the gap",
        accepted,
    )
