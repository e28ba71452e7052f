"""Trace contexts that applications give their messages: header `traceparent`, by W3C's Trace
Context. The header belongs to the application; the relay reads it and delivers it unchanged.

::

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    version   trace ID                  span ID          flags, the last bit: sampled
"""

from __future__ import annotations

import re
from typing import NamedTuple

from relay.batches.batch import make_entry
from relay.batches.opened_batch import OpenedBatch
from relay.bulk_amqp.content_header import header
from relay.bulk_amqp.errors import MalformedProperties

TRACEPARENT_HEADER = b"traceparent"
MOST_LINKED = 8
"""Most messages of a batch whose spans the batch's spans are linked with."""

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LIKELY_SAMPLED = re.compile(rb"-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]")
_STRINGS = frozenset(b"Sx")
_TEXT_AT = 5
"""Place of a string's first byte, behind its tag and its length."""
_SAMPLED = 0x01


class MessageContext(NamedTuple):
    """Span of an application in which a message was published."""

    trace_id: int
    span_id: int
    is_sampled: bool


class BatchContexts(NamedTuple):
    """Contexts of a batch's messages."""

    sampled: tuple[MessageContext, ...]
    """The first sampled ones, without repetitions, at most MOST_LINKED."""
    unsampled: MessageContext | None
    """Context that is not sampled, or None if there is none before the last of `sampled`."""

    @property
    def parent(self) -> MessageContext | None:
        """Context by which a sampler decides on the batch, or None if no message has any."""
        return self.sampled[0] if self.sampled else self.unsampled


NO_CONTEXTS = BatchContexts((), None)


def parse_traceparent(text: bytes) -> MessageContext | None:
    """Read a header's text; return None for any that the recommendation has readers ignore."""
    found = _TRACEPARENT.fullmatch(text.strip(b" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == b"ff" or (version == b"00" and more) or not trace_id or not span_id:
        return None
    return MessageContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def context_of(properties: bytes) -> MessageContext | None:
    """Return the context in a message's raw properties, or None if there is none to be read."""
    try:
        value = header(properties, TRACEPARENT_HEADER)
    except MalformedProperties:
        return None
    if not value or value[0] not in _STRINGS:
        return None
    return parse_traceparent(value[_TEXT_AT:])


def contexts_of(messages: OpenedBatch) -> BatchContexts:
    """Return the contexts of a batch's messages, in their order."""
    sampled: dict[MessageContext, None] = {}
    unsampled = None
    seen: set[bytes] = set()
    for number in range(len(messages)):
        properties = make_entry(messages.entry(number)).properties
        # Walking a header table costs ten times as much as this search, and messages of one span,
        # or of an application that samples none, need no more than one walk.
        likely = _LIKELY_SAMPLED.search(properties)
        if likely is None and unsampled is not None:
            continue
        if likely is not None and likely[0] in seen:
            continue
        context = context_of(properties)
        if context is None:
            continue
        # Another header may look like this one, and be the same in each message.
        if likely is not None and likely[0][1:33] == b"%032x" % context.trace_id:
            seen.add(likely[0])
        if not context.is_sampled:
            unsampled = context
            continue
        sampled[context] = None
        if len(sampled) == MOST_LINKED:
            break
    return BatchContexts(tuple(sampled), unsampled)
