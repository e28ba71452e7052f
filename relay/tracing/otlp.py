"""Export of spans by OTLP over HTTP, with OpenTelemetry's SDK: the only importer of OpenTelemetry.

The SDK takes its settings from the environment, and its thread exports from a bounded queue. A
collector that is away, slow or answers nonsense costs spans, which are counted, and no more than a
line in the log until the collector takes spans again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from relay.tracing.message_context import MessageContext
from relay.tracing.traced_batches import BatchStage, StageSpan, TracedBatches

log = logging.getLogger(__name__)

QUEUE_SPANS = 4096
"""Spans that wait for the collector, some 4 MB; further ones are lost."""
FLUSH_WITHIN_S = 2.0
"""Time at a process's end for the spans that wait."""
FLUSHING = "traces: flush"
"""Name of the thread that waits for these."""

_OPERATIONS = {
    BatchStage.PACKED: ("receive", "pack", SpanKind.CONSUMER),
    BatchStage.LOGGED: ("process", "log", SpanKind.INTERNAL),
    BatchStage.SENT: ("send", "send", SpanKind.PRODUCER),
    BatchStage.DELIVERED: ("send", "deliver", SpanKind.PRODUCER),
    BatchStage.POINTER: ("receive", "relay", SpanKind.CONSUMER),
}
"""Type and name of the operation, by the conventions for messaging, and the kind of the span."""
_SCOPE = InstrumentationScope("isthmus")
_VENDOR = "opentelemetry"
"""Logger of the SDK, which would write a line at each failed export."""


class OtlpExport:
    """Export of one process's spans, by the environment. Raises ValueError for settings that the
    SDK cannot read.
    """

    def __init__(self, mesh: str) -> None:
        # A provider makes the sampler that the environment names; its other parts are not needed.
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        named = Resource({"service.name": "isthmus"}).merge(OTELResourceDetector().detect())
        self._resource = Resource.create().merge(named)
        self._exporter = WatchedExporter(OTLPSpanExporter())
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=QUEUE_SPANS)
        self._taken = 0
        self._lost = 0
        self.batches = TracedBatches(mesh, self._is_sampled, self._emit)
        """Spans of batches, to be reported to."""

    def counts(self) -> dict[str, int]:
        """Return the numbers of spans since the start, for metrics."""
        return {
            "trace_spans": self._exporter.sent,
            "trace_spans_lost": self._lost + self._exporter.failed,
        }

    def close(self) -> None:
        """Export the spans that wait, for FLUSH_WITHIN_S at most."""
        # The SDK waits for a request under way as long as the exporter's own time-out.
        closing = threading.Thread(target=self._processor.shutdown, name=FLUSHING, daemon=True)
        closing.start()
        closing.join(FLUSH_WITHIN_S)

    def _is_sampled(self, trace_id: int, message: MessageContext | None) -> bool:
        parent = None
        if message is not None:
            span = trace.NonRecordingSpan(_span_context(message))
            parent = trace.set_span_in_context(span, Context())
        result = self._sampler.should_sample(parent, trace_id, "pack", SpanKind.CONSUMER)
        return bool(result.decision.is_sampled())

    def _emit(self, span: StageSpan) -> None:
        under_way = self._taken - self._exporter.sent - self._exporter.failed
        if under_way >= QUEUE_SPANS:
            self._lost += 1
            return
        self._taken += 1
        kind, operation, role = _OPERATIONS[span.stage]
        self._processor.on_end(
            ReadableSpan(
                f"{operation} {span.exchange}",
                context=_span_context(MessageContext(span.trace_id, span.span_id, True)),
                parent=None if span.parent is None else _span_context(span.parent),
                resource=self._resource,
                attributes={
                    "messaging.system": "rabbitmq",
                    "messaging.operation.type": kind,
                    "messaging.operation.name": operation,
                    "messaging.destination.name": span.exchange,
                    **span.attributes,
                },
                links=[Link(_span_context(link)) for link in span.links],
                kind=role,
                start_time=span.begun_ns,
                end_time=span.ended_ns,
                instrumentation_scope=_SCOPE,
            )
        )


def _span_context(context: MessageContext) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags)


class WatchedExporter:
    """Exporter that counts, and logs once when a collector stops or begins to take spans. Called by
    the SDK's thread alone.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self.sent = 0
        self.failed = 0
        self._exporter = exporter
        self._is_away = False
        self._lines = _Lines()
        vendor = logging.getLogger(_VENDOR)
        vendor.handlers = [self._lines]
        vendor.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._lines.texts.clear()
        try:
            result = self._exporter.export(spans)
        except Exception as error:
            # An answer that the exporter has not foreseen: these spans are lost, as by any other.
            result = SpanExportResult.FAILURE
            self._lines.texts.append(repr(error))
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
            if self._is_away:
                self._is_away = False
                log.info("spans are exported again", extra={"event": "traces-taken-again"})
            return result
        self.failed += len(spans)
        if not self._is_away:
            self._is_away = True
            log.warning(
                "spans are lost, and messages go on: %s",
                next(iter(self._lines.texts), "the collector does not take them"),
                extra={"event": "traces-not-taken"},
            )
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


class _Lines(logging.Handler):
    """Handler that keeps the SDK's lines about one export, of which the first has the cause."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
