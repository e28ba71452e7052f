"""Spans of a batch's stages, made from what the stages report. Pure; `otlp` exports them.

All spans of a batch are one trace, whatever site makes them::

    packed at the origin                 from the first message's arrival until handed to the log
      logged at the origin               until the log's confirm
        sent to B                        until B's acknowledgement
        logged at B                      parent: the span of the log that the batch comes from
          delivered at B                 from the look at the batch until its commit
          sent to C
          logged at C ...

A parent is a span of a log, never that of a sender: a sender may end before it hears that the
batch has arrived, or the mesh's group may have brought the batch.

Each packed span has a *pointer* in the trace of every application that it is linked with: a span
below the application's own, with a link to the batch's trace, since few viewers follow a link
backwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar

from relay.batches.batch import BatchHeader, BatchKind, BatchName
from relay.batches.format import BadBatch
from relay.batches.opened_batch import OpenedBatch, open_batch
from relay.tracing.message_context import NO_CONTEXTS, MessageContext, contexts_of
from relay.tracing.trace_ids import span_id_of, trace_id_of

MOST_REMEMBERED = 4096
"""Batches that are remembered: whether they are traced, and since when a stage has them. One that
is forgotten is opened once more, or lacks the span of the stage that took so long."""

_WITH_MESSAGES = frozenset({BatchKind.MESSAGES, BatchKind.FRAGMENT, BatchKind.REPAIR})
_NS_A_MS = 1_000_000

K = TypeVar("K")
V = TypeVar("V")


class BatchStage(StrEnum):
    """Stage of a batch's way, with a span of its own."""

    PACKED = "packed"
    LOGGED = "logged"
    SENT = "sent"
    DELIVERED = "delivered"
    POINTER = "pointer"
    """Sign in an application's trace that a batch has the message."""


@dataclass(frozen=True, slots=True)
class StageSpan:
    """Span of one stage, ended. Times are nanoseconds since 1970."""

    stage: BatchStage
    exchange: str
    trace_id: int
    span_id: int
    parent: MessageContext | None
    """Parent of the span, or None for a trace's first."""
    begun_ns: int
    ended_ns: int
    links: tuple[MessageContext, ...]
    attributes: Mapping[str, str | int]


class _Begun(NamedTuple):
    """Stage that has begun: the time (ns), and the links of its batch."""

    at_ns: int
    links: tuple[MessageContext, ...]


class TracedBatches:
    """BatchTrace of a mesh. `is_sampled` decides by a batch's trace ID, and by the context of one
    of its messages where any has one; `emit` takes the spans. `now_ns` is the wall clock.
    """

    def __init__(
        self,
        mesh: str,
        is_sampled: Callable[[int, MessageContext | None], bool],
        emit: Callable[[StageSpan], None],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._mesh = mesh
        self._is_sampled = is_sampled
        self._emit = emit
        self._now_ns = now_ns
        self._links: dict[BatchName, tuple[MessageContext, ...] | None] = {}
        """Links of batches that are traced; None for those that are not."""
        self._in_log: dict[tuple[BatchName, str], _Begun] = {}
        """Batches on their way into the log of a site, of which a process may have several."""
        self._on_link: dict[tuple[BatchName, str, str], _Begun] = {}
        """Batches on their way from a site to a peer."""

    def trace_id_of(self, batch: str) -> str:
        """ID, in hexadecimal digits, of the trace of a batch of this name."""
        return f"{trace_id_of(self._mesh, batch):032x}"

    def logging(self, header: BatchHeader, data: bytes) -> None:
        links = self._links_of(header, partial(open_batch, data, header))
        if links is None:
            return
        begun = _Begun(self._now_ns(), links)
        _remember(self._in_log, (header.name, header.path[-1]), begun)
        if len(header.path) == 1:
            self._packed(header, begun)

    def logged(self, header: BatchHeader) -> None:
        begun = self._in_log.pop((header.name, header.path[-1]), None)
        if begun is None:
            return
        *before, here = header.path
        above = (BatchStage.LOGGED, before[-1]) if before else (BatchStage.PACKED, here)
        more = {"isthmus.from": before[-1]} if before else {}
        self._emit(self._span(BatchStage.LOGGED, header, above, begun, more))

    def sending(self, header: BatchHeader, data: bytes, peer: str) -> None:
        links = self._links_of(header, partial(open_batch, data, header))
        # A batch that is sent again has been on its way since the first time.
        way = header.name, header.path[-1], peer
        if links is not None and way not in self._on_link:
            _remember(self._on_link, way, _Begun(self._now_ns(), links))

    def sent(self, headers: Sequence[BatchHeader], peer: str) -> None:
        for header in headers:
            begun = self._on_link.pop((header.name, header.path[-1], peer), None)
            if begun is not None:
                above, more = (BatchStage.LOGGED, header.path[-1]), {"isthmus.peer": peer}
                self._emit(self._span(BatchStage.SENT, header, above, begun, more))

    def delivered(
        self, header: BatchHeader, messages: OpenedBatch, since_ms: int, count: int
    ) -> None:
        links = self._links_of(header, lambda: messages)
        if links is not None:
            begun = _Begun(since_ms * _NS_A_MS, links)
            above, more = (BatchStage.LOGGED, header.path[-1]), {"isthmus.delivered_count": count}
            self._emit(self._span(BatchStage.DELIVERED, header, above, begun, more))

    def _links_of(
        self, header: BatchHeader, opened: Callable[[], OpenedBatch]
    ) -> tuple[MessageContext, ...] | None:
        """Return the links of a batch that is traced, else None."""
        name = header.name
        if header.kind not in _WITH_MESSAGES:
            return None
        if name not in self._links:
            try:
                contexts = contexts_of(opened())
            except BadBatch:
                contexts = NO_CONTEXTS  # the deliverer quarantines the batch
            trace_id = trace_id_of(self._mesh, str(name))
            is_traced = self._is_sampled(trace_id, contexts.parent)
            _remember(self._links, name, contexts.sampled if is_traced else None)
        return self._links[name]

    def _packed(self, header: BatchHeader, begun: _Begun) -> None:
        # Messages of a repair were published long before, and perhaps elsewhere.
        is_repair = header.kind is BatchKind.REPAIR
        first_ns = begun.at_ns if is_repair else header.first_published_ms * _NS_A_MS
        packed = self._span(BatchStage.PACKED, header, None, begun._replace(at_ns=first_ns), {})
        self._emit(packed)
        to_batch = (MessageContext(packed.trace_id, packed.span_id, True),)
        for context in begun.links:
            place = f"{context.trace_id:032x}", f"{context.span_id:016x}"
            self._emit(
                replace(
                    packed,
                    stage=BatchStage.POINTER,
                    trace_id=context.trace_id,
                    span_id=span_id_of(packed.trace_id, BatchStage.POINTER, *place),
                    parent=context,
                    links=to_batch,
                )
            )

    def _span(
        self,
        stage: BatchStage,
        header: BatchHeader,
        above: tuple[BatchStage, str] | None,
        begun: _Begun,
        more: Mapping[str, str | int],
    ) -> StageSpan:
        """Make a span that ends now. `above` are stage and site of its parent; `more` are the
        attributes of the stage alone.
        """
        series, name, here = header.name.series, str(header.name), header.path[-1]
        trace_id, now_ns = trace_id_of(self._mesh, name), self._now_ns()
        peer = [str(more["isthmus.peer"])] if stage is BatchStage.SENT else []
        return StageSpan(
            stage,
            series.exchange,
            trace_id,
            span_id_of(trace_id, stage, here, *peer),
            None if above is None else MessageContext(trace_id, span_id_of(trace_id, *above), True),
            min(begun.at_ns, now_ns),  # clocks of two sites, or one set back
            now_ns,
            begun.links,
            {
                "messaging.batch.message_count": header.entry_count,
                "isthmus.mesh": self._mesh,
                "isthmus.site": here,
                "isthmus.origin": series.origin,
                "isthmus.lane": series.lane,
                "isthmus.batch": name,
                "isthmus.batch.number": header.name.sequence,
                "isthmus.batch.bytes": header.byte_count,
                "isthmus.batch.kind": header.kind.name.lower(),
                **more,
            },
        )


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Enter a value into a dictionary, which then forgets its oldest if it has too many."""
    known[key] = value
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]
