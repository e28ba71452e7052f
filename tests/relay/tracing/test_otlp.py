"""Export by OTLP: by the standard variables, to a collector that may be away, slow, or foolish."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from relay.tracing.otlp import FLUSHING, QUEUE_SPANS, OtlpExport, WatchedExporter
from tests.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.relay.tracing.traced_messages import SPAN, TRACE, traced_batch, traceparent
from tests.waiting import until_met


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield receiver


def log_batch(export: OtlpExport, *texts: str, sequence: int = 0) -> None:
    """Report a batch: three spans, if the batch is traced and a message has a context."""
    header, data = traced_batch(*texts, sequence=sequence)
    export.batches.logging(header, data)
    export.batches.logged(header)


def lost(export: OtlpExport) -> int:
    return export.counts()["trace_spans_lost"]


def test_spans_come_with_names_links_and_the_resource_of_the_environment(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mesh-paris")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,team=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    export = OtlpExport("acme")
    log_batch(export, f"00-{TRACE}-{SPAN}-01")
    export.close()
    packed, pointer, logged = receiver.spans
    assert [span.name for span in receiver.spans] == ["pack orders", "relay orders", "log orders"]
    assert packed.links == logged.links == ((TRACE, SPAN),)
    assert (pointer.trace_id, pointer.parent_id) == (TRACE, SPAN)
    assert pointer.links == ((packed.trace_id, packed.span_id),)
    assert (packed.parent_id, logged.parent_id) == ("", packed.span_id)
    assert packed.attributes["messaging.system"] == "rabbitmq"
    assert packed.attributes["messaging.destination.name"] == "orders"
    assert packed.attributes["messaging.batch.message_count"] == 1
    assert packed.resource["service.name"] == "mesh-paris"
    assert packed.resource["deployment.environment"] == "prod"
    assert receiver.headers[0]["authorization"] == "Bearer abc"
    assert export.counts() == {"trace_spans": 3, "trace_spans_lost": 0}


def test_without_a_service_name_the_service_is_isthmus(receiver: OtlpReceiver) -> None:
    export = OtlpExport("acme")
    log_batch(export)
    export.close()
    assert {span.resource["service.name"] for span in receiver.spans} == {"isthmus"}


SAMPLED, UNSAMPLED = traceparent(1), traceparent(2, sampled=False)


@pytest.mark.parametrize(
    ("sampler", "argument", "texts", "traced"),
    [
        (None, None, (), True),
        (None, None, (UNSAMPLED,), False),
        (None, None, (UNSAMPLED, SAMPLED), True),
        ("parentbased_always_off", None, (), False),
        ("parentbased_always_off", None, (UNSAMPLED, SAMPLED), True),
        ("parentbased_traceidratio", "0", (), False),
        ("parentbased_traceidratio", "0", (SAMPLED,), True),
        ("parentbased_traceidratio", "1", (), True),
        ("parentbased_traceidratio", "1", (UNSAMPLED,), False),
        ("always_on", None, (UNSAMPLED,), True),
        ("always_off", None, (SAMPLED,), False),
    ],
)
def test_the_sampler_of_the_environment_decides(
    sampler: str | None,
    argument: str | None,
    texts: tuple[str, ...],
    traced: bool,
    receiver: OtlpReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if sampler is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    if argument is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    export = OtlpExport("acme")
    log_batch(export, *texts)
    export.close()
    assert bool(receiver.spans) is traced


def test_a_ratio_takes_about_so_many_batches_and_the_same_ones_in_every_process(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    traced = []
    for _ in range(2):
        export = OtlpExport("acme")
        for sequence in range(400):
            log_batch(export, sequence=sequence)
        export.close()
        traced.append({span.trace_id for span in receiver.spans})
        receiver.spans.clear()
    assert traced[0] == traced[1]
    assert 70 <= len(traced[0]) <= 130


@pytest.mark.parametrize(("status", "body"), [(500, b""), (400, b"\xff\0nonsense")])
def test_a_collector_that_takes_nothing_costs_spans_and_one_line(
    status: int, body: bytes, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status, receiver.body = status, body
    export = OtlpExport("acme")
    with caplog.at_level(logging.INFO):
        for sequence in range(3):
            log_batch(export, sequence=sequence)
            until_met(lambda wanted=2 * (sequence + 1): lost(export) == wanted, "lost", 20)
        assert [record.event for record in caplog.records] == ["traces-not-taken"]  # type: ignore[attr-defined]
        receiver.status, receiver.body = 200, b""
        log_batch(export, sequence=9)
        until_met(lambda: receiver.spans, "taken again", 20)
        until_met(lambda: export.counts()["trace_spans"] == 2, "counted", 20)
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert events == ["traces-not-taken", "traces-taken-again"]
    export.close()


def test_a_collector_that_is_away_costs_spans_and_one_line_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with otlp_receiver() as gone:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    export = OtlpExport("acme")
    log_batch(export)
    until_met(lambda: lost(export) == 2, "lost", 20)
    (record,) = caplog.records
    assert record.event == "traces-not-taken"  # type: ignore[attr-defined]
    assert "refused" in record.getMessage()
    export.close()


def test_a_slow_collector_holds_up_nobody_and_what_exceeds_the_queue_is_lost_and_counted(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    receiver.answers.clear()
    export = OtlpExport("acme")
    batches = QUEUE_SPANS // 2 + 50
    for sequence in range(batches):
        log_batch(export, sequence=sequence)  # would wait for ever if anything here waited
    assert export.counts() == {"trace_spans": 0, "trace_spans_lost": 100}
    receiver.answers.set()
    until_met(lambda: export.counts()["trace_spans"] == QUEUE_SPANS, "all are taken", 60)
    export.close()
    assert export.counts() == {"trace_spans": QUEUE_SPANS, "trace_spans_lost": 100}
    assert len(receiver.spans) == QUEUE_SPANS


def test_an_exporter_that_raises_loses_its_spans_and_no_others() -> None:
    class Raising:
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if spans:
                raise KeyError("an answer that nobody has foreseen")
            return SpanExportResult.SUCCESS

    watched = WatchedExporter(Raising())  # type: ignore[arg-type]
    assert watched.export([ReadableSpan("one")]) is SpanExportResult.FAILURE
    assert watched.export([]) is SpanExportResult.SUCCESS
    assert (watched.sent, watched.failed) == (0, 1)


def test_the_end_does_not_wait_for_a_collector_that_hangs(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600")
    receiver.answers.clear()
    export = OtlpExport("acme")
    log_batch(export)
    export.close()
    assert FLUSHING in {thread.name for thread in threading.enumerate()}
    assert not receiver.spans
