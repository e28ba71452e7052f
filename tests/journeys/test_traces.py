"""Traces of batches over real brokers: what a collector gets, and that a node does without one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import aio_pika
import aiohttp
import pytest

from tests.journeys.conftest import MeshFactory
from tests.journeys.live_mesh import LiveMesh
from tests.otlp_receiver import OtlpReceiver, ReceivedSpan, otlp_receiver
from tests.waiting import until

pytestmark = pytest.mark.any_release

APPLICATION = "0af7651916cd43dd8448eb211c80319c"
MESSAGES = 3


def traced(endpoint: str) -> dict[str, str]:
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
    }


async def publish(mesh: LiveMesh, headers: Iterable[Mapping[str, str]]) -> None:
    """Messages with these headers at paris, as an instrumented application publishes them."""
    connection = await aio_pika.connect(mesh.uri("paris"))
    async with connection:
        exchange = await (await connection.channel()).get_exchange("orders")
        for number, table in enumerate(headers):
            message = aio_pika.Message(b"body %d" % number, headers=dict(table))
            await exchange.publish(message, "key")


async def consumed(mesh: LiveMesh, site: str, queue: str) -> list[aio_pika.abc.HeadersType]:
    """Headers of the messages in a queue, once there are some."""
    connection = await aio_pika.connect(mesh.uri(site))
    async with connection:
        declared = await (await connection.channel()).get_queue(queue)
        found: list[aio_pika.abc.HeadersType] = []

        async def has_come() -> bool:
            while (message := await declared.get(no_ack=True, fail=False)) is not None:
                found.append(message.headers)
            return len(found) == MESSAGES

        await until(has_come, "all messages are there", 60)
    return found


async def bind(mesh: LiveMesh, site: str, queue: str) -> None:
    connection = await aio_pika.connect(mesh.uri(site))
    async with connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, durable=True)
        await declared.bind(mesh.mesh.exchanges["orders"].delivers_to, "#")


def stages(spans: Iterable[ReceivedSpan]) -> list[tuple[str, str, str]]:
    """Name, site and peer of each span."""
    return sorted((span.name, span.site, span.attributes.get("isthmus.peer", "")) for span in spans)


EVERY_STAGE = sorted(
    [
        ("pack orders", "paris", ""),
        ("log orders", "paris", ""),
        ("send orders", "paris", "lyon"),
        ("log orders", "lyon", ""),
        ("deliver orders", "lyon", ""),
        ("send orders", "lyon", "oslo"),
        ("log orders", "oslo", ""),
        ("deliver orders", "oslo", ""),
    ]
)


def check_parents(trace: Iterable[ReceivedSpan]) -> None:
    """Each span hangs on the log of its site, or of the site before, and that on the packing."""
    known = {(span.name, span.site): span for span in trace if not span.name.startswith("send")}
    for span in trace:
        if span.name == "pack orders":
            assert not span.parent_id
            continue
        above = {
            "log orders": ("log orders", span.attributes.get("isthmus.from", "")),
            "send orders": ("log orders", span.site),
            "deliver orders": ("log orders", span.site),
        }[span.name]
        above = above if above[1] else ("pack orders", span.site)
        assert span.parent_id == known[above].span_id, span


async def test_the_way_of_a_batch_over_three_sites_is_one_trace_linked_with_the_applications(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "lyon", "oslo", topology={"hub": "lyon"})
    await bind(mesh, "lyon", "here")
    await bind(mesh, "oslo", "here")
    contexts = [f"00-{APPLICATION}-{number:016x}-01" for number in (1, 2)]
    with otlp_receiver() as receiver:
        mesh.environment = traced(receiver.endpoint)
        mesh.start_each()
        await mesh.running()
        await publish(mesh, [{}])  # of a batch without contexts, which this sampler leaves out
        # It has to be alone in that batch.
        await mesh.until_told(
            lambda told: told["sites"]["paris"]["packed"] == 1, "the first message is packed"
        )
        await publish(mesh, [{"traceparent": text} for text in contexts])
        for site in ("lyon", "oslo"):
            headers = await consumed(mesh, site, "here")
            found = [table["traceparent"] for table in headers if "traceparent" in table]
            assert found == contexts  # they belong to the application
        own = await until(lambda: whole_traces(receiver), lambda: f"{stages(receiver.spans)}", 60)
        for site in list(mesh.processes):
            assert mesh.stop(site) == 0

    linked = set()
    for trace in own:
        assert stages(trace) == EVERY_STAGE
        check_parents(trace)
        assert len({span.links for span in trace}) == 1
        assert {span.resource["service.name"] for span in trace} == {"isthmus"}
        linked |= set(trace[0].links)
    assert linked == {(APPLICATION, f"{number:016x}") for number in (1, 2)}
    pointers = [span for span in receiver.spans if span.name == "relay orders"]
    assert {(span.trace_id, span.parent_id) for span in pointers} == linked
    assert {span.links[0][0] for span in pointers} == {trace[0].trace_id for trace in own}


def whole_traces(receiver: OtlpReceiver) -> list[list[ReceivedSpan]]:
    """The batches' traces, once both messages have come through the mesh in one or two of them."""
    traces: dict[str, list[ReceivedSpan]] = {}
    for span in receiver.spans:
        if span.trace_id != APPLICATION:
            traces.setdefault(span.trace_id, []).append(span)
    messages = [spans[0].attributes["messaging.batch.message_count"] for spans in traces.values()]
    are_whole = all(len(spans) == len(EVERY_STAGE) for spans in traces.values())
    return list(traces.values()) if sum(messages) == 2 and are_whole else []


async def spans_lost(mesh: LiveMesh, site: str) -> float:
    """The node's metric of lost spans."""
    port = json.loads((mesh.state / "sites" / site / "node.json").read_text())["admin_port"]
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        text = await answer.text()
    (value,) = re.findall(r"^isthmus_trace_spans_lost_total (\S+)$", text, re.MULTILINE)
    return float(value)


async def test_messages_go_on_without_a_collector_and_without_lines_of_each_failure(
    live_mesh: MeshFactory,
) -> None:
    mesh = await live_mesh("paris", "lyon", topology="complete")
    with otlp_receiver() as gone:
        mesh.environment = traced(gone.endpoint) | {"OTEL_TRACES_SAMPLER": "always_on"}
    await mesh.listen()
    mesh.start_each()
    await mesh.running()
    for _ in range(3):
        await mesh.publish_everywhere(200)
        await mesh.arrived()
    mesh.check()
    for site in ("paris", "lyon"):
        assert await until(lambda site=site: spans_lost(mesh, site), "lost spans are counted", 60)
    for site in list(mesh.processes):
        assert mesh.stop(site) == 0
    for site in ("paris", "lyon"):
        lines = [json.loads(line) for line in (mesh.folder / f"{site}.log").open()]
        assert [line.get("event") for line in lines].count("traces-not-taken") == 1
        assert not [line for line in lines if line["logger"].startswith("opentelemetry")]
