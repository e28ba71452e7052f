"""Batches of messages with the header `traceparent`, and what a recorder has of their spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from relay.batches.batch import BatchHeader, Entry
from relay.batches.format import seal
from relay.bulk_amqp import field_table
from relay.tracing.message_context import MessageContext
from relay.tracing.traced_batches import StageSpan, TracedBatches
from tests.log_batches import batch
from tests.message_properties import properties

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PUBLISHED_MS = 1_000_000


def traceparent(number: int = 1, *, sampled: bool = True) -> str:
    return f"00-{TRACE}-{number:016x}-{int(sampled):02x}"


def with_header(text: str) -> bytes:
    """Raw properties with the header `traceparent`."""
    value = field_table.long_string(text.encode())
    return properties(field_table.entry(b"traceparent", value))


def message(number: int, raw: bytes) -> Entry:
    return Entry(number.to_bytes(16), b"key", raw, b"body", PUBLISHED_MS)


def traced_batch(
    *texts: str, sequence: int = 0, path: Sequence[str] = ("paris",)
) -> tuple[BatchHeader, bytes]:
    """A batch of a message for each `traceparent`; without any, of one message without."""
    raws = [with_header(text) for text in texts] or [properties()]
    entries = [message(number, raw) for number, raw in enumerate(raws)]
    header, _ = batch(sequence, messages=len(entries), published_ms=PUBLISHED_MS)
    return seal(replace(header, path=tuple(path), byte_count=0, entry_count=len(entries)), entries)


@dataclass
class Recorder:
    """Spans of batches, in a mesh `acme` whose clock is at the given time."""

    now_ns: int = 2_000_000 * 1_000_000
    verdict: bool = True
    asked: list[MessageContext | None] = field(default_factory=list)
    spans: list[StageSpan] = field(default_factory=list)
    trace: TracedBatches = field(init=False)

    def __post_init__(self) -> None:
        self.trace = self.process()

    def process(self) -> TracedBatches:
        """Begin anew, as another process does: of the batches before nothing is known."""
        self.trace = TracedBatches("acme", self._decide, self.spans.append, lambda: self.now_ns)
        return self.trace

    def _decide(self, trace_id: int, context: MessageContext | None) -> bool:
        self.asked.append(context)
        return self.verdict
