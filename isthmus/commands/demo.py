"""`isthmus demo`: three sites, a cut line, a killed node, the count, the audit, and the repair."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table

from federation.brokers.credentials import load_or_make
from federation.mesh_file import load_mesh
from isthmus.brokers.private_brokers import plan_brokers
from isthmus.demo import (
    LOSSY_NODES,
    ActFailed,
    DemoAudit,
    DemoConsumer,
    DemoPublisher,
    LedgerCounts,
    read_counts,
)
from isthmus.known.address_book import address_book
from isthmus.options import DEFAULT_STATE, EXIT_FAULT, RabbitMQFolder
from isthmus.status import StatusReport, status_of
from isthmus.up.supervisor import end_supervisor
from spark_audit.session import SparkMissing, require_spark
from wan_proxy import ProxiedLine, WanProxy

SITES = ("paris", "tokyo", "sydney")
LINE = ("paris", "tokyo")
VICTIM = "sydney"
CUT_AT, HEAL_AFTER_S, KILL_AT = 0.2, 8.0, 0.5
AUDITS = DEFAULT_STATE / "demo-audit"
"""Folder of the reports, kept after the demo."""
QUIET_S = 45.0
"""Seconds without an arrival after which missing messages are given up."""

MESH = """\
mesh: demo
outage_window: 72h
topology: ring
links:
  - {{from: {0}, to: {1}, via: "127.0.0.1:{port}"}}
exchanges:
  - name: orders
    keys: ["order.#"]
sites:
  paris: {{}}
  tokyo: {{}}
  sydney: {{}}
"""


@dataclass
class _Story:
    """Events of the demo in words, for the live picture."""

    console: Console
    began: float
    events: list[str] = field(default_factory=list)

    def tell(self, what: str) -> None:
        """Add an event: to the picture on a terminal, else as a line at once."""
        self.events.append(self._line(what))
        if not self.console.is_terminal:
            self.say(what)

    def say(self, what: str) -> None:
        """Print an event at once, when there is no picture any more."""
        self.console.print(self._line(what), highlight=False, markup=False, soft_wrap=True)

    def _line(self, what: str) -> str:
        return f"{time.monotonic() - self.began:5.1f} s  {what}"


def demo(
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=100, help="Published at each site.")
    ] = 10_000,
    per_second: Annotated[float, typer.Option("--per-second", min=10, help="At each site.")] = 500,
    rabbitmq: RabbitMQFolder = None,
) -> None:
    """Three sites in a ring on this machine: ordinary clients publish at each, while a line is cut
    silently and a node is killed. Shows the course live, then counts arrivals at each site and
    audits them. In the end three messages are lost on purpose; the audit names them, the repair
    brings them.

    Exit status 0 if every message arrived at every site, once, the audit proves the arrival, and
    the losses on purpose are repaired. The audit needs Java and pyspark (`make setup-audit`), and
    is left out without.
    """
    console = Console()
    with tempfile.TemporaryDirectory(prefix="isthmus-demo-") as folder:
        playing = _demo(Path(folder), messages, per_second, rabbitmq, console)
        try:
            good = asyncio.run(_until_terminated(playing))
        except asyncio.CancelledError:
            console.print("ended by a signal, nodes and brokers with it", style="red")
            good = False
    if not good:
        raise typer.Exit(EXIT_FAULT)


async def _until_terminated(playing: Coroutine[Any, Any, bool]) -> bool:
    """Run the demo and end in order at SIGTERM as at Ctrl-C: its brokers would outlive a killed
    demo.
    """
    task = asyncio.ensure_future(playing)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _demo(
    folder: Path, messages: int, per_second: float, rabbitmq: Path | None, console: Console
) -> bool:
    state, file = folder / "state", folder / "mesh.yaml"
    story = _Story(console, time.monotonic())
    began_ms = time.time() * 1000
    async with WanProxy() as proxy:
        file.write_text(MESH.format(*LINE, port=1))
        planned = load_mesh(file)
        specs = plan_brokers(planned, state, load_or_make(state, planned))
        line = await proxy.open_line("-".join(LINE), "127.0.0.1", specs[LINE[1]][0].amqp_port)
        file.write_text(MESH.format(*LINE, port=line.port))
        mesh = load_mesh(file)
        command = [sys.executable, "-m", LOSSY_NODES, "up", str(file), "--state", str(state)]
        if rabbitmq is not None:
            command += ["--rabbitmq", str(rabbitmq.absolute())]
        log_file = folder / "supervisor.log"
        with log_file.open("wb") as log:
            supervisor = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, start_new_session=True
            )
        try:
            story.tell("starting three private RabbitMQ brokers and a node for each")
            with console.status("starting three RabbitMQ brokers and their nodes ..."):
                report = await status_of(mesh, state)
                while not report.all_running:
                    if supervisor.returncode is not None:
                        console.print(log_file.read_text(), style="red")
                        return False
                    if time.monotonic() - story.began > 120:
                        console.print(f"not up after 120 s: {report.summary}", style="red")
                        return False
                    await asyncio.sleep(0.25)
                    report = await status_of(mesh, state)
            story.tell("everything runs")
            book = address_book(mesh, state)
            uris = {site: book.application(site).uri for site in SITES}
            publishers = [DemoPublisher(site, uris[site], messages, per_second) for site in SITES]
            consumers = [DemoConsumer(site, uris[site]) for site in SITES]
            for consumer in consumers:
                await consumer.start()
            await _play(mesh, state, line, publishers, consumers, story, console)
            out = AUDITS.absolute()
            act = DemoAudit(mesh, file, state, out, began_ms, console, story.say)
            try:
                good = await _count_and_audit(act, uris[SITES[0]], publishers, consumers)
            finally:
                await act.close()
            for consumer in consumers:
                await consumer.close()
        finally:
            with console.status("ending nodes and brokers in order ..."):
                await end_supervisor(state)
            await supervisor.wait()
    verdict = "every message arrived at every site" if good else "NOT as promised"
    console.print(f"{verdict}; {time.monotonic() - story.began:.0f} s in all")
    return good


async def _count_and_audit(
    act: DemoAudit, uri: str, publishers: list[DemoPublisher], consumers: list[DemoConsumer]
) -> bool:
    """Count and audit; True if all went as promised. The victim is the last site on the way from
    the first.
    """
    good = _all_good(publishers, consumers)
    try:
        await act.write_ledgers()
        ledger = {
            site: read_counts(act.state / "sites" / site / "ledger") for site in act.mesh.sites
        }
        act.console.print(_result(publishers, consumers, ledger))
        require_spark()
        await act.proven()
        await act.lose_and_repair(uri, consumers[-1], consumers[1])
    except SparkMissing as error:
        act.console.print(f"the audit is left out: {error}")
    except ActFailed as error:
        act.console.print(str(error), style="red")
        return False
    return good


async def _play(
    mesh: Any,
    state: Path,
    line: ProxiedLine,
    publishers: list[DemoPublisher],
    consumers: list[DemoConsumer],
    story: _Story,
    console: Console,
) -> None:
    """Publish, cut, heal, kill; return when everything has arrived, or nothing more arrives."""
    total = sum(p.count for p in publishers)
    publishing = [asyncio.create_task(p.run()) for p in publishers]
    story.tell(f"publishing {publishers[0].count:,} messages at each site")
    cut_at = heal_at = killed_at = 0.0
    progress, progress_at = -1, time.monotonic()
    with Live(console=console, refresh_per_second=4, transient=not console.is_terminal) as live:
        while True:
            now = time.monotonic()
            done = sum(p.confirmed for p in publishers) / total
            if not cut_at and done >= CUT_AT:
                line.cut()
                cut_at, heal_at = now, now + HEAL_AFTER_S
                story.tell(f"the line {LINE[0]} -> {LINE[1]} is cut: silently, no connection ends")
            if heal_at and now >= heal_at:
                line.heal()
                heal_at = 0.0
                story.tell("the line is back")
            report = await status_of(mesh, state)
            if not killed_at and done >= KILL_AT:
                pid = report.content["sites"][VICTIM]["node_pid"]
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    killed_at = now
                    story.tell(f"the node of {VICTIM} (process {pid}) is killed with SIGKILL")
            live.update(_picture(report, publishers, consumers, story))
            for task in publishing:
                if task.done():
                    task.result()
            arrived = sum(c.arrived(p.site) for c in consumers for p in publishers)
            if arrived > progress:
                progress, progress_at = arrived, now
            finished = all(task.done() for task in publishing) and killed_at and not heal_at
            if finished and arrived == total * len(consumers):
                story.tell("everything has arrived")
                live.update(_picture(report, publishers, consumers, story))
                return
            if finished and now - progress_at > QUIET_S:
                story.tell(f"nothing more arrives for {QUIET_S:.0f} s")
                live.update(_picture(report, publishers, consumers, story))
                return
            await asyncio.sleep(0.25)


def _picture(
    report: StatusReport,
    publishers: list[DemoPublisher],
    consumers: list[DemoConsumer],
    story: _Story,
) -> Group:
    sites = Table("site", "node", "published", *(f"from {p.site}" for p in publishers))
    for publisher, consumer in zip(publishers, consumers, strict=True):
        content = report.content["sites"][publisher.site]
        sites.add_row(
            publisher.site,
            content["state"],
            f"{publisher.confirmed:,}",
            *(f"{consumer.arrived(p.site):,}" for p in publishers),
        )
    links = Table("link", "state", "messages behind", "seconds behind")
    for link in report.content["links"]:
        messages, seconds = link["lag_messages"], link["lag_seconds"]
        links.add_row(
            f"{link['from']} -> {link['to']}",
            link["state"],
            "?" if messages is None else f"{messages:,}",
            "?" if seconds is None else f"{seconds:.1f}",
        )
    return Group(sites, links, *story.events)


def _all_good(publishers: list[DemoPublisher], consumers: list[DemoConsumer]) -> bool:
    return all(
        consumer.arrived(publisher.site) == publisher.confirmed == publisher.count
        and not consumer.disordered[publisher.site]
        and (consumer.site == publisher.site or not consumer.repeated[publisher.site])
        for publisher in publishers
        for consumer in consumers
    )


def _result(
    publishers: list[DemoPublisher], consumers: list[DemoConsumer], ledger: dict[str, LedgerCounts]
) -> Table:
    table = Table(
        *("origin", "destination"),
        *(
            Column(name, justify="right")
            for name in ("published", "delivered", "suppressed", "redelivered", "lost")
        ),
        title="what was published where, and what came of it",
        caption="Each 100th message was published twice under one ID: the second is suppressed. "
        "Redelivered: flagged, since the killed node may have delivered it already.",
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for publisher in publishers:
        for consumer in consumers:
            if consumer.site == publisher.site:
                continue
            counts = ledger[consumer.site]
            arrived = consumer.arrived(publisher.site)
            table.add_row(
                publisher.site,
                consumer.site,
                f"{publisher.confirmed + publisher.again:,}",
                f"{arrived:,}",
                f"{counts.suppressed[publisher.site]:,}",
                f"{consumer.flagged[publisher.site]:,}",
                f"{publisher.confirmed - arrived:,}",
            )
    return table
